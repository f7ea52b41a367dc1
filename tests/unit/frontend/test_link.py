"""The link over real ZMQ sockets, against a scripted scheduler end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.errors import BadRequest, ClientGone, Overloaded, Unavailable, WireError
from pdcluster_worker.core.log import Sparse
from pdcluster_worker.frontend.link import Inbox, ZmqLink
from pdcluster_worker.wire import codec
from pdcluster_worker.wire.local import (
    Abort,
    Decline,
    Failed,
    Hop,
    Ready,
    Sampling,
    Submit,
    Tokens,
    ToScheduler,
)
from tests.unit.frontend.fakes import READY, STATUS


def submit(rid: str) -> Submit:
    return Submit(rid=rid, input_ids=b"\1\0\0\0", sampling=Sampling())


class Scheduler:
    """The other end."""

    def __init__(self, folder: Path) -> None:
        self.context = zmq.asyncio.Context()
        self.pull = self.context.socket(zmq.PULL)
        self.pull.bind(f"ipc://{folder}/requests.sock")
        self.push = self.context.socket(zmq.PUSH)
        self.push.linger = 0
        self.push.connect(f"ipc://{folder}/outputs.sock")

    async def read(self) -> ToScheduler:
        frame = await asyncio.wait_for(self.pull.recv(), 5)
        return codec.to_scheduler.read(frame)

    async def send(self, message: Ready | Tokens | Failed) -> None:
        await self.push.send(codec.write(message))

    def close(self) -> None:
        self.pull.close()
        self.push.close()
        self.context.term()


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[ZmqLink]:
    link = ZmqLink(
        requests=f"ipc://{tmp_path}/requests.sock",
        outputs=f"ipc://{tmp_path}/outputs.sock",
        status=f"ipc://{tmp_path}/status.sock",
        live_max=3,
        sparse=Sparse(SystemClock()),
    )
    link.start()
    yield link
    link.close()


@pytest.fixture
async def scheduler(tmp_path: Path, link: ZmqLink) -> AsyncIterator[Scheduler]:
    _ = link
    scheduler = Scheduler(tmp_path)
    yield scheduler
    scheduler.close()


async def test_not_ready(link: ZmqLink) -> None:
    with pytest.raises(Unavailable):
        link.open(submit("a"))


async def test_there_and_back(link: ZmqLink, scheduler: Scheduler) -> None:
    await scheduler.send(READY)
    assert await asyncio.wait_for(link.wait_ready(), 5) == READY
    inbox = link.open(submit("a"))
    assert await scheduler.read() == submit("a")
    await scheduler.send(Tokens(rid="other", ids=(9,)))
    await scheduler.send(Tokens(rid="a", ids=(1,)))
    await scheduler.send(Tokens(rid="a", ids=(2,), finish="length"))
    assert [(await inbox.get()).rid for _ in range(2)] == ["a", "a"]
    assert link.live == 0


async def test_garbage_is_dropped(link: ZmqLink, scheduler: Scheduler) -> None:
    for garbage in (b"", b"\xff" * 100, codec.write(submit("x")), b"\x81"):
        await scheduler.push.send(garbage)
    await scheduler.send(READY)
    assert await asyncio.wait_for(link.wait_ready(), 5) == READY


async def test_limits_and_names(link: ZmqLink, scheduler: Scheduler) -> None:
    await scheduler.send(READY)
    await link.wait_ready()
    for rid in "abc":
        link.open(submit(rid))
    with pytest.raises(BadRequest, match="rid"):
        link.open(submit("a"))
    with pytest.raises(Overloaded):
        link.open(submit("d"))
    link.abort("a", ClientGone("left"))
    link.abort("a", ClientGone("left"))
    link.abort("never", ClientGone("left"))
    link.open(submit("d"))
    read = [await scheduler.read() for _ in range(5)]
    assert [m.rid for m in read if isinstance(m, Submit | Abort)] == ["a", "b", "c", "a", "d"]


async def test_a_restarted_scheduler_ends_what_its_predecessor_had(
    link: ZmqLink, scheduler: Scheduler
) -> None:
    await scheduler.send(READY)
    await link.wait_ready()
    inbox = link.open(submit("a"))
    await scheduler.send(Ready(instance="i-2", capacity_tokens=1, vocab=1, eos_token_ids=()))
    message = await asyncio.wait_for(inbox.get(), 5)
    assert isinstance(message, Failed)
    assert link.ready is not None
    assert link.ready.instance == "i-2"
    link.lost("it died")
    with pytest.raises(Unavailable):
        link.open(submit("b"))


async def test_a_scheduler_that_does_not_read_makes_overload(
    tmp_path: Path, link: ZmqLink, scheduler: Scheduler
) -> None:
    await scheduler.send(READY)
    await link.wait_ready()
    scheduler.pull.close()
    await asyncio.sleep(0.1)
    with pytest.raises(Overloaded):
        link.open(submit("a"))
    # Aborts wait, and go out when somebody reads again.
    link._inboxes["z"] = Inbox()
    link.abort("z", ClientGone("left"))
    scheduler.pull = scheduler.context.socket(zmq.PULL)
    scheduler.pull.bind(f"ipc://{tmp_path}/requests.sock")
    assert await scheduler.read() == Abort(rid="z", reason="left")


async def test_many_messages_leave_others_a_turn(link: ZmqLink, scheduler: Scheduler) -> None:
    await scheduler.send(READY)
    await link.wait_ready()
    inbox = link.open(submit("a"))
    for number in range(1000):
        await scheduler.send(Tokens(rid="a", ids=(number,)))
    got = [(await asyncio.wait_for(inbox.get(), 5)) for _ in range(1000)]
    assert [m.ids[0] for m in got if isinstance(m, Tokens)] == list(range(1000))


async def test_status(tmp_path: Path, link: ZmqLink) -> None:
    with pytest.raises(Unavailable):
        await link.status(0.05)
    context = zmq.asyncio.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{tmp_path}/status.sock")

    async def reply(answer: bytes) -> None:
        *envelope, _ = await router.recv_multipart()
        await router.send_multipart([*envelope, answer])

    task = asyncio.create_task(reply(codec.write(STATUS)))
    assert await link.status(5) == STATUS
    await task
    task = asyncio.create_task(reply(codec.write(STATUS)))
    with pytest.raises(WireError):
        await link.metrics(5)
    await task
    router.close(linger=0)
    context.term()


async def test_a_declined_room_is_told_once_there_is_somebody(
    link: ZmqLink, scheduler: Scheduler
) -> None:
    hop = Hop(host="h", port=1, room=5)
    link.decline(hop, Overloaded("full"))  # nobody yet: prefill cannot be waited for either
    await scheduler.send(READY)
    await asyncio.wait_for(link.wait_ready(), 5)
    link.decline(hop, Unavailable("later"))
    assert await scheduler.read() == Decline(hop=hop, kind="unavailable", message="later")
