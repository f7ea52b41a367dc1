"""The network between nodes: frames, lookups and one-sided writes, each with a fate.

Without faults: frames take a millisecond and keep their order, lookups three, writes up to ten.
What a fault changes is asked of the world's rules, one message at a time.
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pdcluster_worker.core.errors import (
    PeerLost,
    TransferError,
    TransferPeerLost,
    TransferTimeout,
    WorkerError,
)
from pdcluster_worker.core.ports import Contact, WriteStats
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim.node import Node
from pdcluster_worker.wire.peer import Abort, AbortAck, Body, Delivered, Publish, Refused

if TYPE_CHECKING:
    from pdcluster_worker.sim.world import World

FRAME_S: Final = 0.001
LOOKUP_S: Final = 0.003
RECENT_MAX: Final = 64
HELD_MAX: Final = 64  # frames that wait for a process to listen again, per host


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one message: the delay of each copy that arrives, in seconds."""

    delays: tuple[float, ...] = (0.0,)
    fails_after: float | None = None  # a write only: reported as failed then, whatever arrives


def room_of(body: Body) -> int:
    """The room that a frame is about; 0 for one about none."""
    match body:
        case Publish() | Abort() | AbortAck() | Refused() | Delivered():
            return body.room
        case _:
            return 0


class Network:
    """Carries messages between the nodes of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        # What came lately, by host: to be played again.
        self.recent: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=RECENT_MAX))
        self._held: defaultdict[str, list[bytes]] = defaultdict(list)

    # ------------------------------------------------------------------------------ frames
    def send(self, source: Node, host: str, *, frame: bytes, body: Body) -> None:
        """One control frame."""
        world = self._world
        if world.drop(body):
            return
        fate = world.fate(type(body).__name__, source, host=host, room=room_of(body))
        world.note(source.host, f"-> {host}", what=body, fate=fate)
        for delay in fate.delays:
            world.at(world.now + FRAME_S + delay, lambda: self._deliver(host, frame))

    def _deliver(self, host: str, frame: bytes) -> None:
        node = self._world.nodes.get(host)
        self.recent[host].append(frame)
        if node is not None and node.alive:
            node.frames.append(frame)
            node.wake()
        elif len(self._held[host]) < HELD_MAX:
            self._held[host].append(frame)  # the sender's socket waits to connect again

    def listening(self, node: Node) -> None:
        """A new process listens at an address: it gets what its predecessor did not."""
        node.frames += self._held.pop(node.host, [])

    # ----------------------------------------------------------------------------- lookups
    def resolve(self, asker: Node, address: tuple[str, int]) -> None:
        """Ask a bootstrap server."""
        world = self._world
        fate = world.fate("lookup", asker, host=address[0], room=0)

        def answer() -> None:
            node = world.nodes.get(address[0])
            outcome: Contact | WorkerError = PeerLost("connection refused")
            if node is not None and node.alive and fate.fails_after is None:
                outcome = Contact(
                    instance=node.instance, pod_uid=node.pod_uid, host=node.host, port=8997,
                    fingerprint=node.fingerprint,
                )  # fmt: skip
            asker.lookups.append((address, outcome))
            asker.wake()

        # Its own HTTP timeout ends a lookup that nobody answers.
        timeout = asker.sizes.limits.http_timeout_s
        delay = min(fate.delays[0], timeout) if fate.delays else timeout
        world.at(world.now + LOOKUP_S + delay, answer)

    # ------------------------------------------------------------------------------ writes
    def write(self, source: Node, write: Write, *, now: float) -> None:
        """Post a one-sided write; its outcome comes to the source, its notice to the target."""
        world = self._world
        target = world.by_instance.get(write.instance)
        if write.instance not in source.joined or target is None or not target.alive:
            self._failed(source, write, TransferPeerLost("gone"))
            self._settled(source, write)
            return
        fate = world.fate("write", source, host=target.host, room=write.notice.room)
        world.note(source.host, f"=> {target.host}", what=write.notice, fate=fate)
        lease = source.pages.tenancy[write.source].copy() if write.region == "kv" else None
        arrives = world.write_delay(write) + (fate.delays[0] if fate.delays else 0.0)
        fails = fate.fails_after if fate.fails_after is not None else write.within_s
        failed = fails < arrives or not fate.delays
        if failed:
            kind = TransferTimeout if fate.fails_after is None else TransferError
            world.at(now + fails, lambda: self._failed(source, write, kind("made up")))

        def complete() -> None:
            if not source.alive:
                return
            if target.alive and fate.delays:
                world.land(source, target, write=write, lease=lease)
                self._notify(source, target, write)
            elif not failed:
                self._failed(source, write, TransferPeerLost("gone"))
            if failed or not target.alive:
                self._settled(source, write)
            else:
                self._done(source, write)

        world.at(now + max(arrives, fails if not fate.delays else 0.0), complete)

    def _notify(self, source: Node, target: Node, write: Write) -> None:
        world = self._world
        fate = world.fate("notice", source, host=target.host, room=write.notice.room)
        notice = write.notice.pack()

        def deliver() -> None:
            if target.alive:
                target.notices.append(notice)
                target.wake()

        for delay in fate.delays:
            if delay:
                world.at(world.now + delay, deliver)
            else:
                deliver()

    @staticmethod
    def _done(source: Node, write: Write) -> None:
        stats = WriteStats(bytes=8 * len(write.source), descriptors=1, seconds=0.0)
        source.outcomes.append(
            lambda t: source.pipeline.write_done(write.key, write.instance, stats=stats, now=t)
        )
        source.wake()

    @staticmethod
    def _failed(source: Node, write: Write, error: WorkerError) -> None:
        source.outcomes.append(
            lambda t: source.pipeline.write_failed(write.key, write.instance, error=error, now=t)
        )
        source.wake()

    @staticmethod
    def _settled(source: Node, write: Write) -> None:
        source.outcomes.append(lambda t: source.pipeline.write_settled(write.key, t))
        source.wake()
