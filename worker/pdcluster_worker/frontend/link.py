"""The frontend's end of the pipe to the scheduler.

Who binds: the end that reads. The scheduler binds requests.sock and status.sock, the frontend
binds outputs.sock. A request lives from `open` to its last message or `forget`; every message in
between goes to its `Inbox`. The scheduler announces itself with Ready; a Ready of another instance,
or `lost`, ends all requests of the one before.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import zmq

from pdcluster_worker.core.errors import (
    BadRequest,
    Overloaded,
    Unavailable,
    WireError,
    WorkerError,
)
from pdcluster_worker.core.log import Log, Sparse
from pdcluster_worker.rendezvous.status import StatusAsker
from pdcluster_worker.wire import codec
from pdcluster_worker.wire.local import (
    Abort,
    Decline,
    Failed,
    Hop,
    Ready,
    Status,
    Submit,
    ToFrontend,
    Tokens,
    ToScheduler,
)

READS_PER_WAKE_MAX: Final = 256  # messages taken before other tasks of the loop get a turn
RETRY_S: Final = 0.05  # between attempts to send aborts that did not fit
RECONNECT_MS: Final = 20  # to the scheduler's socket, while it starts

Message = Tokens | Failed


class Inbox:
    """Messages of one request, in order. Its length is bounded by the longest answer."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    def put(self, message: Message) -> None:
        self._messages.put_nowait(message)

    async def get(self) -> Message:
        """Wait for the next message; after the last one it would wait for ever."""
        return await self._messages.get()


class SchedulerLink(Protocol):
    """What the frontend needs of the scheduler; everything but the two questions is immediate."""

    @property
    def ready(self) -> Ready | None:
        """None until the scheduler serves, and again once it is gone."""
        ...

    @property
    def absence(self) -> str:
        """Why ``ready`` is None."""
        ...

    def open(self, request: Submit) -> Inbox:
        """Hand a request over. Unavailable, Overloaded or BadRequest (rid in use) when not."""
        ...

    def abort(self, rid: str, error: WorkerError, *, finished: bool = False) -> None:
        """End a request early and forget it. Unknown rids are ignored."""
        ...

    def decline(self, hop: Hop, error: WorkerError) -> None:
        """A request of this room was refused before `open`: the other leg is to be told."""
        ...

    async def status(self, timeout_s: float) -> Status:
        """The scheduler's own truth; Unavailable when it does not answer."""
        ...

    async def metrics(self, timeout_s: float) -> bytes:
        """The scheduler's metrics as text; Unavailable when it does not answer."""
        ...


class ZmqLink:
    """`SchedulerLink` over ZMQ ipc. Lives in one event loop; `start` it there."""

    def __init__(
        self, *, requests: str, outputs: str, status: str, live_max: int, sparse: Sparse
    ) -> None:
        """Addresses as in `core.settings.Settings`; ``live_max`` bounds requests and queues."""
        self._addresses = (requests, outputs)
        self._live_max = live_max
        self._sparse = sparse
        self._log = Log("link")
        self._asker = StatusAsker(status)
        self._context = zmq.Context()
        self._push = self._context.socket(zmq.PUSH)
        self._pull = self._context.socket(zmq.PULL)
        self._inboxes: dict[str, Inbox] = {}
        self._unsent: deque[Abort | Decline] = deque(maxlen=live_max)
        self._ready: Ready | None = None
        self._absence = "the model is not loaded yet"
        self._ready_event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> Ready | None:
        return self._ready

    @property
    def absence(self) -> str:
        return self._absence

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._inboxes)

    def start(self) -> None:
        """Bind and connect; call in the running loop."""
        requests, outputs = self._addresses
        for socket in (self._push, self._pull):
            socket.linger = 0
            socket.sndhwm = socket.rcvhwm = 2 * self._live_max
        self._push.set(zmq.IMMEDIATE, 1)  # nothing is queued for a scheduler that is not there
        self._push.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._push.connect(requests)
        self._pull.set(zmq.MAXMSGSIZE, codec.LOCAL_BYTES_MAX)
        self._pull.bind(outputs)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pull.fileno(), self._read)
        self._loop.call_soon(self._read)

    async def wait_ready(self) -> Ready:
        """Wait for the scheduler."""
        while self._ready is None:
            await self._ready_event.wait()
        return self._ready

    def open(self, request: Submit) -> Inbox:
        if self._ready is None:
            raise Unavailable(self._absence)
        if request.rid in self._inboxes:
            raise BadRequest(f"rid: {request.rid!r} is in use by a live request", field="rid")
        if len(self._inboxes) >= self._live_max:
            raise Overloaded(f"{len(self._inboxes)} live requests")
        self._flush()
        if not self._send(request):
            raise Overloaded("the scheduler takes no more requests now")
        inbox = self._inboxes[request.rid] = Inbox()
        return inbox

    def abort(self, rid: str, error: WorkerError, *, finished: bool = False) -> None:
        if self._inboxes.pop(rid, None) is not None:
            abort = Abort(rid=rid, reason=str(error), kind=error.kind, finished=finished)
            self._unsent.append(abort)
            self._flush()

    def decline(self, hop: Hop, error: WorkerError) -> None:
        if self._ready is not None:
            self._unsent.append(Decline(hop=hop, kind=error.kind, message=str(error)))
            self._flush()

    def lost(self, reason: str) -> None:
        """The scheduler process is gone: its requests end now, new ones wait for the next Ready."""
        self._ready = None
        self._absence = reason
        self._ready_event.clear()
        self._unsent.clear()
        inboxes, self._inboxes = self._inboxes, {}
        for rid, inbox in inboxes.items():
            inbox.put(Failed(rid=rid, kind=Unavailable.kind, message=reason))

    async def status(self, timeout_s: float) -> Status:
        return await self._asker.status(timeout_s)

    async def metrics(self, timeout_s: float) -> bytes:
        return await self._asker.metrics(timeout_s)

    def close(self) -> None:
        """Give up all sockets. Idempotent."""
        if self._loop is not None and not self._pull.closed:
            self._loop.remove_reader(self._pull.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._push.close()
        self._pull.close()
        self._asker.close()
        self._context.term()

    # --------------------------------------------------------------------------- sending
    def _send(self, message: ToScheduler) -> bool:
        try:
            self._push.send(codec.write(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _flush(self) -> None:
        """Send what waits; what does not fit is tried again soon."""
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()
        if self._unsent and self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if not self._push.closed:
            self._flush()

    # --------------------------------------------------------------------------- reading
    def _read(self) -> None:
        """Drain the socket: its file descriptor tells of changes only, not of what is left."""
        for _ in range(READS_PER_WAKE_MAX):
            if self._pull.closed:
                return
            try:
                frame = self._pull.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._dispatch(codec.to_frontend.read(frame))
            except WireError as error:
                if (held := self._sparse.due("local message")) is not None:
                    self._log.warning("message dropped", reason=error, held_back=held)
        if self._loop is not None:
            self._loop.call_soon(self._read)

    def _become_ready(self, message: Ready) -> None:
        """Ready counts once our own socket has reached the scheduler's: it retries to connect."""
        if self._push.closed or self._loop is None:
            return
        if not self._push.poll(0, zmq.POLLOUT):
            self._loop.call_later(RETRY_S, self._become_ready, message)
            return
        self._ready = message
        self._ready_event.set()

    def _dispatch(self, message: ToFrontend) -> None:
        if isinstance(message, Ready):
            if self._ready is not None and self._ready.instance != message.instance:
                self.lost("the scheduler was restarted")
            self._become_ready(message)
            return
        last = isinstance(message, Failed) or message.finish is not None
        inbox = self._inboxes.pop(message.rid, None) if last else self._inboxes.get(message.rid)
        if inbox is not None:  # else the client has left already
            inbox.put(message)
