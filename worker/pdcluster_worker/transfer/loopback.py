"""A transport inside one process that moves real bytes through the real descriptor arithmetic.

It is the double of tests and simulator and serves a worker that hands over to itself. A wrong
address shows here as wrong bytes, as it would over a network. Agents meet in a `LoopbackNetwork`,
whose hook may delay, hold, fail or cut off any write; what is not hooked is moved inside `write`,
as between two processes of one host.
"""

import ctypes
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count

from pdcluster_worker.core.errors import (
    TransferError,
    TransferInvalid,
    TransferPeerLost,
    TransferTimeout,
)
from pdcluster_worker.core.ports import PageIds, Region, TransferPeer, WriteState, WriteStats
from pdcluster_worker.transfer.base import (
    Failure,
    KnownPeer,
    TransportSetup,
    already_known,
    by_name,
    check_write,
    descriptor_row,
    shared_regions,
)
from pdcluster_worker.transfer.runs import count_runs, merge_runs


class Verdict(Enum):
    """What becomes of a write now."""

    GO = "go"  # move its bytes
    WAIT = "wait"  # ask again at the next poll
    FAIL = "fail"  # the library failed it
    LOST = "lost"  # the library says that the peer is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackWrite:
    """What a hook sees of a write whose bytes have not been moved yet."""

    writer: str
    agent: str  # written to
    region: str
    items: int
    notice: bytes
    age_s: float  # since it was posted, on the writer's clock


Hook = Callable[[LoopbackWrite], Verdict]


class LoopbackNetwork:
    """Where the agents of one process find each other; hand the same one to each of them."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook  # may be replaced at any time
        self._inboxes: dict[str, deque[tuple[str, bytes]]] = {}

    def join(self, agent: str) -> deque[tuple[str, bytes]]:
        """Make an agent reachable; the result is where its notices arrive."""
        self._inboxes[agent] = deque()
        return self._inboxes[agent]

    def kill(self, agent: str) -> None:
        """Cut an agent off, as a killed process is: writes to it fail as TransferPeerLost."""
        self._inboxes.pop(agent, None)

    def reaches(self, agent: str) -> bool:
        """Whether writes to the agent arrive."""
        return agent in self._inboxes

    def deliver(self, notice: bytes, *, writer: str, agent: str) -> None:
        """Put a notice into the agent's inbox; it is lost if the agent is gone."""
        if agent in self._inboxes:
            self._inboxes[agent].append((writer, notice))

    def judge(self, write: LoopbackWrite) -> Verdict:
        """The fate of a write at this moment."""
        if not self.reaches(write.agent):
            return Verdict.LOST
        return Verdict.GO if self.hook is None else self.hook(write)


@dataclass(slots=True)
class _Write:
    agent: str
    ours: Region
    theirs: Region
    source: PageIds
    target: PageIds
    notice: bytes
    deadline: float = 0.0
    posted_s: float = 0.0
    posted: bool = False
    moved: bool = False  # bytes are at the peer
    over: bool = False  # notice delivered, or never to be: nothing will happen any more
    seconds: float = 0.0  # posted -> over
    failure: Failure | None = None


class LoopbackTransport:
    """`core.ports.Transport` between agents of one process."""

    name = "loopback"

    def __init__(self, setup: TransportSetup) -> None:
        self._clock = setup.clock
        self._network = setup.network or LoopbackNetwork()  # alone, it can reach itself
        self._regions = by_name(setup.regions)
        if any(region.kind != "DRAM" for region in setup.regions):
            raise TransferInvalid("loopback moves host memory only")
        self._agent_name = uuid.uuid4().hex
        self._told = TransferPeer(
            agent=self._agent_name, metadata=b"loopback", regions=tuple(self._regions.values())
        )
        self._inbox = self._network.join(self._agent_name)
        self._peers: dict[str, KnownPeer] = {}
        self._writes: dict[int, _Write] = {}
        self._leftovers: dict[int, _Write] = {}
        self._handles = count(1)
        self._closed = False

    def local(self) -> TransferPeer:
        """What to give to peers of the same network."""
        return self._told

    def add_peer(self, peer: TransferPeer) -> None:
        """Learn a peer. Raises TransferPeerLost for one that is not on our network."""
        if self._closed:
            raise TransferInvalid("this transport is closed")
        if already_known(self._peers.get(peer.agent), peer):
            return
        if peer.metadata != self._told.metadata:
            raise TransferInvalid(f"peer {peer.agent!r} is no loopback agent")
        shared = shared_regions(self._regions, peer)
        if not self._network.reaches(peer.agent):
            raise TransferPeerLost(f"peer {peer.agent!r} is not on this network")
        self._peers[peer.agent] = KnownPeer(peer, shared)

    def remove_peer(self, agent: str) -> None:
        """Forget a peer. Raises TransferInvalid while handles to it are held."""
        if any(write.agent == agent for write in self._writes.values()):
            raise TransferInvalid(f"peer {agent!r} still has handles; release them first")
        self._peers.pop(agent, None)
        self._leftovers = {h: w for h, w in self._leftovers.items() if w.agent != agent}

    def prepare(
        self, *, agent: str, region: str, source: PageIds, target: PageIds, notice: bytes
    ) -> int:
        """Make a write; see the contract. An empty notice is none."""
        peer = self._peers.get(agent)
        if peer is None:
            raise TransferInvalid(f"peer {agent!r} is unknown")
        theirs = peer.region(region)
        ours = self._regions[region]
        check_write(source=source, ours=ours, target=target, theirs=theirs, notice=notice)
        handle = next(self._handles)
        self._writes[handle] = _Write(agent, ours, theirs, source.copy(), target.copy(), notice)
        return handle

    def post(self, handle: int, *, deadline: float) -> None:
        """Start a prepared write. Raises TransferInvalid for a handle that is not prepared."""
        write = self._writes.get(handle)
        if write is None or write.posted:
            raise TransferInvalid(f"write handle {handle} is unknown, released or posted")
        write.deadline, write.posted_s, write.posted = deadline, self._clock.now(), True
        self._try_move(write)

    def _try_move(self, write: _Write) -> None:
        """Move the bytes if the network lets them go."""
        seen = LoopbackWrite(
            writer=self._agent_name,
            agent=write.agent,
            region=write.ours.name,
            items=write.source.size,
            notice=write.notice,
            age_s=self._clock.now() - write.posted_s,
        )
        verdict = self._network.judge(seen)
        if verdict is Verdict.GO:
            _move(write)
            write.moved = True
        elif verdict is Verdict.LOST:
            write.failure = Failure(TransferPeerLost, f"peer {write.agent!r} is gone")
        elif verdict is Verdict.FAIL:
            write.failure = Failure(TransferError, f"write to {write.agent!r} failed")

    def poll(self, handle: int) -> WriteState:
        """Progress and state. Raises as the contract says."""
        write = self._writes.get(handle)
        if write is None or not write.posted:
            raise TransferInvalid(f"write handle {handle} is unknown, released or not posted")
        if write.failure is None and not write.over:
            self._advance(write)
        if write.failure is not None:
            raise write.failure.error()
        return WriteState.DONE if write.over else WriteState.PENDING

    def _advance(self, write: _Write) -> None:
        if not write.moved:
            self._try_move(write)
        if write.moved:
            self._finish(write)
        elif write.failure is None and self._clock.now() > write.deadline:
            write.failure = Failure(TransferTimeout, f"write to {write.agent!r} is late")

    def _finish(self, write: _Write) -> None:
        if write.notice:
            self._network.deliver(write.notice, writer=self._agent_name, agent=write.agent)
        write.seconds = self._clock.now() - write.posted_s
        write.over = True

    def settled(self, handle: int) -> bool:
        """True once no byte of this handle will be read or delivered any more."""
        write = self._writes.get(handle) or self._leftovers.get(handle)
        if write is None or write.over or not write.posted:
            return True
        return write.failure is not None and self._quiet(write)

    def _quiet(self, write: _Write) -> bool:
        """Whether a failed write ended. One that timed out goes on, as a real one does."""
        late = write.failure
        if not write.over and late is not None and late.kind is TransferTimeout:
            if not write.moved:
                self._try_move(write)
            if write.moved:
                self._finish(write)
            write.over = write.over or write.failure is not late
            return write.over
        return True

    def stats(self, handle: int) -> WriteStats:
        """Of a DONE handle."""
        write = self._writes.get(handle)
        if write is None or not write.over or write.failure is not None:
            raise TransferInvalid(f"write handle {handle} is not done, or released")
        return WriteStats(
            bytes=write.source.size * write.ours.item_bytes,
            descriptors=count_runs(write.source, write.target),
            seconds=write.seconds,
        )

    def release(self, handle: int) -> None:
        """Give the handle back; a write not settled yet stays in flight as a leftover."""
        write = self._writes.pop(handle, None)
        if write is None or write.over or not write.posted:
            return
        if write.failure is None:
            write.failure = Failure(TransferTimeout, "released before it was done")
        if not self._quiet(write):
            self._leftovers[handle] = write

    def notices(self) -> list[tuple[str, bytes]]:
        """What peers delivered since the last call."""
        self._leftovers = {h: w for h, w in self._leftovers.items() if not self._quiet(w)}
        arrived = list(self._inbox)
        self._inbox.clear()
        return arrived

    def close(self) -> None:
        """Leave the network; held writes to and from us never happen."""
        if not self._closed:
            self._closed = True
            self._writes.clear()
            self._leftovers.clear()
            self._peers.clear()
            self._network.kill(self._agent_name)


def _move(write: _Write) -> None:
    """Copy all bytes of a write, one copy per run."""
    ours, theirs = descriptor_row(write.ours)[0], descriptor_row(write.theirs)[0]
    runs = merge_runs(write.source, write.target)
    sources = int(ours[0]) + runs.source.astype(int) * int(ours[3])
    targets = int(theirs[0]) + runs.target.astype(int) * int(theirs[3])
    sizes = runs.length * int(ours[1])
    for source, target, size in zip(
        sources.tolist(), targets.tolist(), sizes.tolist(), strict=True
    ):
        ctypes.memmove(target, source, size)
