"""An executor whose rim is made of lists, and a pipeline that only remembers what it is told."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdcluster_worker.core.errors import Overloaded, TransferError, TransferInvalid, WorkerError
from pdcluster_worker.core.log import Log
from pdcluster_worker.core.ports import (
    PageIds,
    RowContent,
    SequenceStep,
    TransferPeer,
    WriteState,
    WriteStats,
)
from pdcluster_worker.pipeline.effects import Address, Effect, Join, Prepare, Write
from pdcluster_worker.roles.executor import Executor, Rim
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import FrameCodec, Introduction

PEER = "bb" * 16
ROW = RowContent(
    room=1, generation=1, token=1, prompt_tokens=1, cached_tokens=0, logprob=None, top=()
)


class ManualClock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class Transport:
    """Writes go where the test says; the rules of `core.ports.Transport` are asserted."""

    name = "fake"

    def __init__(self) -> None:
        self.peers: set[str] = set()
        self.agents: dict[int, str] = {}  # live handles
        self.posted: dict[int, float] = {}  # handle -> deadline
        self.done: set[int] = set()
        self.failing: dict[int, WorkerError] = {}
        self.quiet: set[int] = set()
        self.log: list[str] = []
        self.refuse_post: TransferError | None = None
        self.refuse_peer: TransferError | None = None
        self.made = 0

    def add_peer(self, peer: TransferPeer) -> None:
        if self.refuse_peer is not None:
            raise self.refuse_peer
        self.peers.add(peer.agent)

    def remove_peer(self, agent: str) -> None:
        assert agent not in self.agents.values(), "its handles must be released before"
        self.peers.discard(agent)
        self.log.append(f"removed {agent[:2]}")

    def prepare(
        self, *, agent: str, region: str, source: PageIds, target: PageIds, notice: bytes
    ) -> int:
        del region, source, target, notice
        if agent not in self.peers:
            raise TransferInvalid("unknown agent")
        self.made += 1
        self.agents[self.made] = agent
        return self.made

    def post(self, handle: int, *, deadline: float) -> None:
        assert handle not in self.posted, "posted twice"
        if self.refuse_post is not None:
            del self.agents[handle]
            raise self.refuse_post
        self.posted[handle] = deadline
        self.log.append(f"posted {handle}")

    def poll(self, handle: int) -> WriteState:
        if handle in self.failing:
            raise self.failing[handle]
        return WriteState.DONE if handle in self.done else WriteState.PENDING

    def settled(self, handle: int) -> bool:
        return handle in self.done or handle in self.quiet

    def stats(self, handle: int) -> WriteStats:
        assert handle in self.agents, "stats after release"
        return WriteStats(bytes=10, descriptors=1, seconds=0.1)

    def release(self, handle: int) -> None:
        self.agents.pop(handle, None)


class Listener:
    """What the executor tells a pipeline."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.outbox: list[Effect] = []

    def write_done(self, key: int, instance: str, *, stats: WriteStats, now: float) -> None:
        self.told.append(("done", key, instance, stats.bytes))

    def write_failed(self, key: int, instance: str, *, error: WorkerError, now: float) -> None:
        self.told.append(("failed", key, instance, error.kind))

    def write_settled(self, key: int, now: float) -> None:
        self.told.append(("settled", key))

    def resolved(self, address: Address, outcome: object, *, now: float) -> None:
        self.told.append(("resolved", address, type(outcome).__name__))


@dataclass
class Lists:
    """The rest of the rim."""

    launched: list[tuple[SequenceStep, ...]] = field(default_factory=list)
    emitted: list[bytes] = field(default_factory=list)
    sent: list[tuple[Address, bytes]] = field(default_factory=list)
    rows: dict[int, RowContent] = field(default_factory=dict)

    def launch(self, steps: tuple[SequenceStep, ...]) -> None:
        self.launched.append(steps)

    def emit(self, message: bytes) -> None:
        self.emitted.append(message)

    def send(self, endpoint: Address, frame: bytes) -> None:
        self.sent.append((endpoint, frame))

    def write(self, row: int, content: RowContent) -> None:
        self.rows[row] = content

    def submit(self, call: object) -> int:
        raise Overloaded("made up")


class ExecutorRig:
    """The executor under test, with `PEER` joined."""

    def __init__(self) -> None:
        self.clock, self.transport = ManualClock(), Transport()
        self.lists, self.listener = Lists(), Listener()
        self.codec = FrameCodec(cluster="c", token="t", instance="aa" * 16, frame_bytes_max=4096)
        lists: Any = self.lists
        transport: Any = self.transport
        listener: Any = self.listener
        rim = Rim(
            clock=self.clock, engine=lists, local=lists, rows=lists, transport=transport,
            peers=lists, codec=self.codec, rendezvous=lists,
        )  # fmt: skip
        self.executor = Executor(rim, listener, Log("test"))
        self.executor.run([join()])

    @property
    def told(self) -> list[tuple[object, ...]]:
        """By the executor, in order."""
        return self.listener.told

    def poll(self) -> int:
        """Look at open writes."""
        return self.executor.poll_writes(self.clock.now())


def join(instance: str = PEER) -> Join:
    """A decode that says Hello."""
    intro = Introduction(
        role="decode", pod_uid="", host="h", port=1, fingerprint="f", schema="s", transport="t",
        agent=instance, metadata=b"", regions=(),
    )  # fmt: skip
    return Join(instance, intro, welcome=False)


def write(key: int, *, ticket: int = 0, instance: str = PEER) -> Write:
    """Of one page."""
    page = np.array([1], np.int32)
    notice = Notice(kind=NoticeKind.CHUNK, writer="aa" * 16, reader=instance)
    return Write(
        key=key, ticket=ticket, instance=instance, region="kv", source=page, target=page,
        notice=notice, within_s=60.0,
    )  # fmt: skip


def prepare(key: int, *, ticket: int) -> Prepare:
    """The same, not posted yet."""
    return Prepare(write(key, ticket=ticket))
