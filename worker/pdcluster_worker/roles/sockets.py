"""The scheduler's ZMQ sockets: requests, outputs, status (ipc), and peers (tcp).

No call here waits: sends that would block drop the frame and count it, since every exchange of the
protocol has its own timer.
"""

import os
from collections import Counter, OrderedDict
from collections.abc import Iterator

import zmq

Address = tuple[str, int]

PEER_SOCKETS_MAX = 1024  # connections to peers; the least recently used goes first
BATCH_MAX = 64  # messages taken from one socket per tick, so that a tick stays short
LINGER_MS = 200  # at close: the last frames (Bye) get this long
OUTPUT_QUEUE_MAX = 100_000  # messages for a slow frontend; one a token


class Waker:
    """Wakes the loop from another thread (engine, rendezvous)."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Callable from any thread."""
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Forget wake-ups so far."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Free the descriptor."""
        os.close(self.fd)


class PeerSockets:
    """One PULL that peers connect to, and a PUSH per peer endpoint."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        host: str,
        port: int,
        frame_bytes_max: int,
        queue_frames_max: int,
    ) -> None:
        self._context = context
        self._queue_frames_max = queue_frames_max
        self.pull = context.socket(zmq.PULL)
        self.pull.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
        self.pull.setsockopt(zmq.RCVHWM, queue_frames_max)
        self.pull.setsockopt(zmq.LINGER, 0)
        self.pull.bind(_url(host, port))
        bound = self.pull.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = int(bound.rpartition(":")[2])
        self._push: OrderedDict[Address, zmq.Socket[bytes]] = OrderedDict()
        self.dropped: Counter[str] = Counter()

    def send(self, endpoint: Address, frame: bytes) -> None:
        """Queue a frame; dropped and counted when the queue is full."""
        try:
            self._socket(endpoint).send(frame, zmq.NOBLOCK)
        except zmq.Again:
            self.dropped["queue full"] += 1
        except zmq.ZMQError:
            self.dropped["socket"] += 1

    def _socket(self, endpoint: Address) -> zmq.Socket[bytes]:
        known = self._push.get(endpoint)
        if known is not None:
            self._push.move_to_end(endpoint)
            return known
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, self._queue_frames_max)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        for option, seconds in (
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 30),
            (zmq.TCP_KEEPALIVE_INTVL, 5),
            (zmq.TCP_KEEPALIVE_CNT, 3),
        ):
            socket.setsockopt(option, seconds)
        socket.connect(_url(*endpoint))
        self._push[endpoint] = socket
        if len(self._push) > PEER_SOCKETS_MAX:
            self._push.popitem(last=False)[1].close()
        return socket

    def frames(self) -> Iterator[bytes]:
        """At most `BATCH_MAX` frames that have come."""
        return _take(self.pull)

    def close(self) -> None:
        """Close everything; queued frames get `LINGER_MS`."""
        for socket in self._push.values():
            socket.close()
        self.pull.close()


class LocalSockets:
    """Frontend and status sockets of the pod."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], *, requests: str, outputs: str, status: str
    ) -> None:
        self.requests = context.socket(zmq.PULL)
        self.requests.setsockopt(zmq.LINGER, 0)
        self.requests.bind(requests)
        self._outputs = context.socket(zmq.PUSH)
        self._outputs.setsockopt(zmq.SNDHWM, OUTPUT_QUEUE_MAX)
        self._outputs.setsockopt(zmq.LINGER, LINGER_MS)
        self._outputs.connect(outputs)
        self.status = context.socket(zmq.ROUTER)
        self.status.setsockopt(zmq.LINGER, 0)
        self.status.setsockopt(zmq.MAXMSGSIZE, 4096)
        self.status.bind(status)
        self.dropped: Counter[str] = Counter()

    def submitted(self) -> Iterator[bytes]:
        """At most `BATCH_MAX` messages of the frontend."""
        return _take(self.requests)

    def emit(self, message: bytes) -> None:
        """To the frontend; dropped and counted when it does not keep up at all."""
        try:
            self._outputs.send(message, zmq.NOBLOCK)
        except zmq.Again:
            self.dropped["outputs"] += 1

    def asked(self) -> Iterator[tuple[list[bytes], bytes]]:
        """Questions on the status socket: (route, question)."""
        for _ in range(BATCH_MAX):
            try:
                *route, question = self.status.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield route, question

    def answer(self, route: list[bytes], answer: bytes) -> None:
        """Answer a question; dropped when the asker has gone."""
        try:
            self.status.send_multipart([*route, answer], zmq.NOBLOCK)
        except zmq.ZMQError:
            self.dropped["status"] += 1

    def close(self) -> None:
        """Close everything."""
        for socket in (self.requests, self._outputs, self.status):
            socket.close()


def _take(socket: zmq.Socket[bytes]) -> Iterator[bytes]:
    for _ in range(BATCH_MAX):
        try:
            yield socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"tcp://{shown}:{port or '*'}"
