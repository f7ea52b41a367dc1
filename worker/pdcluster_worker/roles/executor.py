"""Carries out the pipeline's effects and reports what became of them.

Open writes are polled here. One that failed is reported at once and kept until the library says
that it is settled: until then its source pages stay pinned, and a peer is not forgotten.
"""

from collections import Counter, deque
from dataclasses import dataclass

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import (
    Overloaded,
    TransferError,
    TransferPeerLost,
    TransferTimeout,
    WireError,
    WorkerError,
)
from pdcluster_worker.core.log import Log, Sparse
from pdcluster_worker.core.ports import Contact, Engine, RowStore, Transport, WriteState
from pdcluster_worker.pipeline.base import Pipeline
from pdcluster_worker.pipeline.effects import (
    Discard,
    Effect,
    Emit,
    FillRow,
    Join,
    Launch,
    Part,
    Prepare,
    Resolve,
    Send,
    Write,
)
from pdcluster_worker.rendezvous.client import RendezvousClient
from pdcluster_worker.rendezvous.messages import FetchTopology, Result
from pdcluster_worker.roles.sockets import LocalSockets, PeerSockets
from pdcluster_worker.wire.codec import write as encode_local
from pdcluster_worker.wire.local import Failed
from pdcluster_worker.wire.peer import FrameCodec


@dataclass(slots=True)
class _Open:
    """A write that is not settled."""

    key: int
    instance: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rim:
    """Everything outside the pipeline that an effect can touch. None: this role has no peers."""

    clock: Clock
    engine: Engine
    local: LocalSockets
    rows: RowStore
    transport: Transport | None
    peers: PeerSockets | None
    codec: FrameCodec | None
    rendezvous: RendezvousClient | None


class Executor:
    """Runs effects in order, on the loop's thread; nothing here waits."""

    def __init__(self, rim: Rim, pipeline: Pipeline, log: Log) -> None:
        self._rim = rim
        self._pipeline = pipeline
        self._log = log
        self._sparse = Sparse(rim.clock)
        self._open: dict[int, _Open] = {}
        self._prepared: dict[int, tuple[str, int]] = {}  # ticket -> instance, handle
        self._agents: dict[str, str] = {}  # instance -> agent
        self._parting: dict[str, str] = {}  # instances to forget once their writes are settled
        self.dropped: Counter[str] = Counter()
        self.write_errors: Counter[str] = Counter()

    def drop(self, cause: str, error: WireError) -> None:
        """Count what did not decode, and log it without flooding."""
        self.dropped[cause] += 1
        if (held_back := self._sparse.due(f"dropped {cause}")) is not None:
            self._log.warning("dropped", what=cause, reason=str(error), more=held_back)

    @property
    def open_writes(self) -> int:
        """Writes that are not settled."""
        return len(self._open)

    def instance_of(self, agent: str) -> str | None:
        """Who an agent belongs to, if it has been joined."""
        for instance, known in self._agents.items():
            if known == agent:
                return instance
        return None

    def run(self, effects: list[Effect]) -> None:
        """Carry out ``effects``; failures come back as calls of the pipeline.

        Where one raises, those behind it go back to the front of the outbox (F49).
        """
        left = deque(effects)
        try:
            while left:
                self._do(left.popleft())
        finally:
            self._pipeline.outbox[:0] = left

    def _do(self, effect: Effect) -> None:
        rim = self._rim
        match effect:
            case Emit():
                self._emit(effect)
            case Launch():
                rim.engine.launch(effect.steps)
            case FillRow():
                rim.rows.write(effect.row, effect.content)
            case Write():
                self._write(effect)
            case Prepare():
                self._prepare(effect.write)
            case Discard():
                self._discard(effect.ticket)
            case Send():
                self._send(effect)
            case Resolve():
                self._resolve(effect)
            case Join():
                self._join(effect)
            case Part():
                self._parting[effect.instance] = effect.agent
                self._agents.pop(effect.instance, None)  # nothing new goes to it
                self._part()

    def _emit(self, effect: Emit) -> None:
        try:
            message = encode_local(effect.message)
        except WireError as error:
            self.drop("output", error)
            instead = Failed(rid=effect.message.rid, kind=error.kind, message="answer too large")
            message = encode_local(instead)
        self._rim.local.emit(message)

    # ------------------------------------------------------------------------------ writes
    def _write(self, effect: Write) -> None:
        rim, now = self._rim, self._rim.clock.now()
        try:
            prepared = self._prepared.pop(effect.ticket, None)
            _, handle = self._make(effect) if prepared is None else prepared
            assert rim.transport is not None
            rim.transport.post(handle, deadline=now + effect.within_s)
        except TransferError as error:
            self._failed(effect.key, effect.instance, error, now)
            self._pipeline.write_settled(effect.key, now)
            return
        self._open[handle] = _Open(effect.key, effect.instance)

    def _make(self, effect: Write) -> tuple[str, int]:
        transport = self._rim.transport
        if transport is None or effect.instance not in self._agents:
            raise TransferPeerLost(f"peer {effect.instance} is not joined")
        handle = transport.prepare(
            agent=self._agents[effect.instance],
            region=effect.region,
            source=effect.source,
            target=effect.target,
            notice=effect.notice.pack(),
        )
        return effect.instance, handle

    def _prepare(self, write: Write) -> None:
        try:
            self._prepared[write.ticket] = self._make(write)
        except TransferError as error:
            # Told again, and acted upon, when it is to be posted.
            self._log.debug("write not prepared", peer=write.instance, error=str(error))

    def _discard(self, ticket: int) -> None:
        prepared = self._prepared.pop(ticket, None)
        if prepared is not None and self._rim.transport is not None:
            self._rim.transport.release(prepared[1])

    def poll_writes(self, now: float) -> int:
        """Look at every open write; returns how many settled."""
        transport = self._rim.transport
        if transport is None or not self._open:
            return 0
        # All are polled before any outcome is dealt with: a notice leaves when its write is polled.
        settled: list[tuple[int, _Open, WorkerError | None]] = []
        for handle, write in self._open.items():
            if write.failed:
                if transport.settled(handle):
                    settled.append((handle, write, None))
                continue
            try:
                if transport.poll(handle) is WriteState.DONE:
                    settled.append((handle, write, None))
            except (TransferError, TransferTimeout) as error:
                settled.append((handle, write, error))
        return sum(self._outcome(handle, w, error, now) for handle, w, error in settled)

    def _outcome(self, handle: int, write: _Open, error: WorkerError | None, now: float) -> bool:
        """Tell the pipeline; True when the write is settled."""
        transport = self._rim.transport
        assert transport is not None
        if error is not None:
            write.failed = True
            self._failed(write.key, write.instance, error, now)
            return False
        stats = None if write.failed else transport.stats(handle)
        transport.release(handle)
        del self._open[handle]
        if stats is None:
            self._pipeline.write_settled(write.key, now)
        else:
            self._pipeline.write_done(write.key, write.instance, stats=stats, now=now)
        if write.instance in self._parting:
            self._part()
        return True

    def _failed(self, key: int, instance: str, error: WorkerError, now: float) -> None:
        self.write_errors[error.kind] += 1
        if (held_back := self._sparse.due(f"write {error.kind}")) is not None:
            self._log.warning(
                "write failed", peer=instance, error=str(error), kind=error.kind, more=held_back
            )
        self._pipeline.write_failed(key, instance, error=error, now=now)

    # ------------------------------------------------------------------------------- peers
    def _join(self, effect: Join) -> None:
        assert self._rim.transport is not None
        self._part()
        if effect.instance in self._parting:
            return  # old writes are open: the warm-up that follows fails, and Hello comes again
        try:
            self._rim.transport.add_peer(effect.intro.peer())
        except TransferError as error:
            self._log.warning("peer not joined", peer=effect.instance, error=str(error))
            return
        self._agents[effect.instance] = effect.intro.agent

    def _part(self) -> None:
        transport = self._rim.transport
        if transport is None:
            return
        busy = {write.instance for write in self._open.values()}
        for instance in [i for i in self._parting if i not in busy]:
            for ticket in [t for t, (owner, _) in self._prepared.items() if owner == instance]:
                self._discard(ticket)
            agent = self._parting.pop(instance)
            transport.remove_peer(agent)

    def _send(self, effect: Send) -> None:
        rim = self._rim
        assert rim.codec is not None
        assert rim.peers is not None
        try:
            frame = rim.codec.encode(effect.body, receiver=effect.receiver)
        except WireError as error:
            self.dropped["too large"] += 1
            self._log.error("frame not sent", peer=effect.receiver, error=str(error))
            return
        rim.peers.send(effect.endpoint, frame)

    def _resolve(self, effect: Resolve) -> None:
        rim = self._rim
        assert rim.rendezvous is not None
        try:
            rim.rendezvous.submit(FetchTopology(address=effect.address))
        except Overloaded as error:
            self._pipeline.resolved(effect.address, error, now=rim.clock.now())

    def collect_lookups(self, now: float) -> None:
        """Hand ended lookups to the pipeline."""
        if self._rim.rendezvous is None:
            return
        for result in self._rim.rendezvous.results():
            call = result.call
            if not isinstance(call, FetchTopology):
                if isinstance(result.error, WorkerError):
                    self._log.error("registration failed", error=str(result.error))
                continue
            self._pipeline.resolved(call.address, _outcome(result), now=now)


def _outcome(result: Result) -> Contact | WorkerError:
    if result.topology is None:
        return result.error if isinstance(result.error, WorkerError) else WireError("no topology")
    try:
        return result.topology.contact()
    except WireError as error:
        return error
