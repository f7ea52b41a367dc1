"""The scheduler's sockets: they never wait for a peer, and foreign bytes end nothing."""

import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from pdcluster_worker.core.log import Log
from pdcluster_worker.roles.loop import Loop
from pdcluster_worker.roles.sockets import PeerSockets
from pdcluster_worker.wire.peer import Alive, Body, FrameCodec
from tests.unit.roles.rig import PEER, ExecutorRig

QUEUE = 4
US = "aa" * 16


Context = zmq.Context[zmq.Socket[bytes]]


@pytest.fixture
def context() -> Iterator[Context]:
    made: Context = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def ours(context: Context) -> Iterator[PeerSockets]:
    made = sockets(context)
    yield made
    made.close()


def sockets(context: Context) -> PeerSockets:
    return PeerSockets(
        context, host="127.0.0.1", port=0, frame_bytes_max=4096, queue_frames_max=QUEUE
    )


def received(ours: PeerSockets) -> list[bytes]:
    """What comes within two seconds, until nothing more does."""
    found: list[bytes] = []
    while ours.pull.poll(2000 if not found else 50):
        found += ours.frames()
    return found


@pytest.mark.timeout(20)
def test_e21_a_peer_that_reads_nothing_costs_its_own_frames_only(
    context: Context, ours: PeerSockets
) -> None:
    """Trigger: a peer is stopped, or its host swallows everything, and its queue fills up.
    Others: the scheduler waited in the send, and with it every other request.
    Here: a send that would wait drops its frame and counts it; each exchange has its own timer.
    Bound: send_queue_frames_max for memory; no time at all for the loop.
    """
    alive = sockets(context)
    with (
        contextlib.closing(alive),
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as hole,
    ):
        for _ in range(10 * QUEUE):
            ours.send(hole.getsockname(), b"x" * 4000)
        assert ours.dropped["queue full"] == 9 * QUEUE
        ours.send(("127.0.0.1", alive.port), b"hello")
        assert received(alive) == [b"hello"]


class Listener:
    """Remembers which frames it was told of."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def frame(self, sender: str, body: Body, *, now: float) -> None:
        del now
        self.heard.append((sender, type(body).__name__))


def loop_with(rig: ExecutorRig, peers: PeerSockets) -> tuple[Loop, Listener]:
    listener: Any = Listener()
    nothing: Any = None
    rim = dataclasses.replace(rig.executor._rim, peers=peers)
    made = Loop(
        rim=rim, pipeline=listener, executor=rig.executor, report=nothing,
        waker=nothing, log=Log("test"), instance=US,
    )  # fmt: skip
    return made, listener


def test_e38_foreign_bytes_are_dropped_and_the_next_frame_is_heard(
    context: Context, ours: PeerSockets
) -> None:
    """Trigger: a port scanner, another program or another version talks to the control port.
    Others: an assertion about the first bytes ended the thread, and prefill with it.
    Here: what does not decode, or whose keyed hash is wrong, is dropped and counted.
    Bound: frame_bytes_max a frame, 64 frames a turn.
    """
    loop, listener = loop_with(ExecutorRig(), ours)
    with socket.create_connection(("127.0.0.1", ours.port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n\xff\xfe\x00 gr\xc3\xbc\xc3\x9fe" * 50)
    push = context.socket(zmq.PUSH)
    push.connect(f"tcp://127.0.0.1:{ours.port}")
    theirs = FrameCodec(cluster="c", token="t", instance=PEER, frame_bytes_max=4096)
    foreign = FrameCodec(cluster="c", token="other", instance=PEER, frame_bytes_max=4096)
    push.send_multipart([b"1", "gr\u00fc\u00dfe".encode(), b"", b"\xff" * 100])
    push.send(foreign.encode(Alive(), receiver=US))
    push.send(b"GUARD" + theirs.encode(Alive(), receiver=US))
    push.send(theirs.encode(Alive(), receiver=US))
    while not listener.heard:
        assert ours.pull.poll(2000), "the valid frame never came"
        loop._frames(1.0)
    assert listener.heard == [(PEER, "Alive")]
    assert loop.executor.dropped["frame"] >= 6  # and whatever ZMQ makes of the first bytes
    push.close(linger=0)
