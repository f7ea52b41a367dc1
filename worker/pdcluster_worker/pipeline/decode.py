"""The decode side of a hand-off.

    1. submit                        -> HANDSHAKE  prefill's scheduler is looked up and warmed up
    2. the peer is ready             -> PREALLOC   first in, first out, until memory and row fit
    3. admitted                      -> TRANSFER   pages and row are published to prefill
    4. every chunk and the row came  -> COMMITTED  the row is checked; its token is the first answer
    5. a place in the batch is free  -> RUNNING    one token a pass, until finished
       no page for the next token    -> RETRACTED  KV in host memory; comes back before new ones

A failure in TRANSFER quarantines pages and row: prefill may still write. They come back when
prefill acknowledges the abort, says that it is quiet, or is proven gone, and never because time
has passed.
"""

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import (
    HandshakeTimeout,
    MetadataCorrupt,
    QueueTimeout,
    TransferTimeout,
    WorkerError,
)
from pdcluster_worker.core.ports import (
    Contact,
    PageStore,
    RowContent,
    RowStore,
    StepResult,
)
from pdcluster_worker.kv.lease import LeaseState, Pools
from pdcluster_worker.pipeline.admission import admits
from pdcluster_worker.pipeline.base import Cause, PipelineSettings
from pdcluster_worker.pipeline.decode_peers import DecodePeers
from pdcluster_worker.pipeline.decode_table import TABLE, Action
from pdcluster_worker.pipeline.effects import Address, Effect, Launch
from pdcluster_worker.pipeline.events import Event
from pdcluster_worker.pipeline.peers import PeerTable
from pdcluster_worker.pipeline.receiving import Arrival
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.pipeline.running import load_of
from pdcluster_worker.pipeline.table import Walker
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import RoomKey


class DecodePipeline(DecodePeers):
    """Queues and life cycles of one decode scheduler."""

    def __init__(
        self,
        settings: PipelineSettings,
        pools: Pools,
        *,
        rows: RowStore,
        host: PageStore,
        peers: PeerTable,
        outbox: list[Effect],
    ) -> None:
        super().__init__(settings, pools, host=host, peers=peers, outbox=outbox)
        self._rows = rows
        self._handshake: list[Request] = []
        self._prealloc: list[Request] = []
        self.walker: Walker[Event, Action] = Walker(TABLE)

    def tables(self) -> dict[str, int]:
        """With the queues, the hand-offs under way and the addresses that somebody wants."""
        return super().tables() | {
            "handshake": len(self._handshake),
            "prealloc": len(self._prealloc),
            "arrivals": len(self._arrivals),
            "addresses": len(self._book),
        }

    # ------------------------------------------------------------------------- the table
    def _apply(
        self, request: Request, event: Event, now: float, cause: Cause | None = None
    ) -> None:
        row = self.walker.step(request.stage, event)
        if row is None:
            return
        self._blame(request, cause)
        if row.target is not None:
            self._enter(request, row.target, now, within_s=self._within(row.target))
        for action in row.actions:
            self._act(request, action, now, cause)
        if event is Event.FAILED or row.target is None:
            self._leave(request)
        if row.target is None:
            self._arrivals.pop(request.key, None)
            self._forget(request, now)
        elif row.target is Stage.DEFERRED:
            self._settle(request, now)

    def _within(self, stage: Stage) -> float:
        limits = self.settings.limits
        if stage is Stage.HANDSHAKE:
            return limits.handshake_timeout_s
        if stage is Stage.TRANSFER:
            return limits.transfer_timeout_s
        if stage in (Stage.PREALLOC, Stage.COMMITTED, Stage.RETRACTED):
            return limits.queue_timeout_s
        return float("inf")  # bounded by max_new_tokens and the engine's own limit

    def _leave(self, request: Request) -> None:
        for queue in (self._handshake, self._prealloc):
            if request in queue:
                queue.remove(request)
        self._batch.remove(request)

    def _act(self, request: Request, action: Action, now: float, cause: Cause | None) -> None:
        arrival = self._arrivals.get(request.key)
        lease = request.lease
        match action:
            case Action.PUBLISH:
                self._publish(request, now)
            case Action.COMMIT:
                self._commit(request, now)
            case Action.DROP if request.host_ticket is not None:
                self._host.drop(request.host_ticket)
            case Action.ISOLATE if lease is not None:
                lease.isolate()
            case Action.TELL if cause is not None:
                self._tell(request, arrival, cause, now)
            case Action.RELEASE if lease is not None:
                self._release(request)
            case Action.ANSWER_FAILURE if cause is not None:
                self._answer_failure(request, cause.error)
            case _:
                pass

    def _release(self, request: Request) -> None:
        lease = request.lease
        assert lease is not None
        if lease.row is not None:
            self._rows.clear(lease.row)  # before it is free: a stale room must not be read (E5)
        if lease.state is LeaseState.ISOLATED:
            lease.readmit()
        else:
            lease.release()
        request.lease = None

    def _settle(self, request: Request, now: float) -> None:
        arrival = self._arrivals.get(request.key)
        written = arrival is not None and not arrival.quiet
        if request.stage is Stage.DEFERRED and not request.computing and not written:
            self._apply(request, Event.QUIET, now)

    # ------------------------------------------------------------------ intake and handshake
    def _started(self, request: Request, now: float) -> None:
        self._handshake.append(request)
        self._apply(request, Event.SUBMITTED, now)
        self._reach(request, now)

    def _reach(self, request: Request, now: float) -> None:
        assert request.hop is not None
        try:
            instance = self._book.want((request.hop.host, request.hop.port), now)
        except WorkerError as error:
            self._fail(request, error, now)
            return
        if instance is not None:
            request.peer = instance
            self._handshake.remove(request)
            self._prealloc.append(request)
            self._apply(request, Event.REACHED, now)

    def resolved(self, address: Address, outcome: Contact | WorkerError, *, now: float) -> None:
        """A lookup ended."""
        if isinstance(outcome, WorkerError):
            self.handshake_failures[outcome.kind] += 1
        self._book.resolved(address, outcome)
        self._note_changes(now)

    # ----------------------------------------------------------------- publish and commit
    def _admit(self, now: float) -> None:
        """First come, first served, with break: a large head is not overtaken (F24)."""
        settings = self.settings
        transferring = self._transferring()
        slots = settings.running_max + settings.extra_slots
        slots -= len(self._batch.running) + len(self._batch.committed)
        while self._prealloc and transferring < slots:
            request = self._prealloc[0]
            load = load_of(
                self._batch.running,
                transferring=transferring,
                waiting=len(self._batch.committed),
                retracted_tokens=self._batch.retracted_tokens(),
            )
            if not admits(
                prompt=len(request.prompt),
                max_new=request.max_new,
                available=self.pools.pages.count().free * settings.page_tokens,
                load=load,
                reserved_per_request=settings.reserved_decode_tokens,
                page_tokens=settings.page_tokens,
            ):
                return
            lease = self.pools.lease(pages=settings.pages_for(len(request.prompt)), row=True)
            if lease is None:
                return
            request.lease = lease
            transferring += 1
            self._prealloc.pop(0)
            self._apply(request, Event.ADMITTED, now)

    def _publish(self, request: Request, now: float) -> None:
        assert request.hop is not None
        assert request.lease is not None
        assert request.lease.row is not None
        limits = self.settings.limits
        arrival = Arrival(
            instance=request.peer,
            generation=next(self._generations),
            pages=len(request.lease.pages),
            published_at=now,
            latest=now + limits.queue_timeout_s + limits.transfer_timeout_s,
        )
        self._arrivals[request.key] = arrival
        self._rows.clear(request.lease.row)  # nothing of a former owner may be read as ours (E5)
        self._peers.say(request.peer, arrival.publish(request))

    def _written(self, request: Request, arrival: Arrival, notice: Notice, now: float) -> None:
        if not arrival.take(notice):
            self._fail(request, MetadataCorrupt("the hand-off's chunks miscount"), now)
        elif arrival.complete:
            arrival.quiet = True
            self._apply(request, Event.DELIVERED, now)
            self._settle(request, now)

    def _commit(self, request: Request, now: float) -> None:
        arrival = self._arrivals[request.key]
        assert request.lease is not None
        assert request.lease.row is not None
        content = self._rows.read(request.lease.row)
        if (content.room, content.generation) != (request.room, arrival.generation):
            found = f"found {content.room}/{content.generation}"
            expected = f"expected {request.room}/{arrival.generation}"
            error = MetadataCorrupt(f"metadata row names another room: {found}, {expected}")
            self._fail(request, error, now)
            return
        self._rows.clear(request.lease.row)
        request.lease.drop_row()
        request.computed = len(request.prompt)
        sizes = self.settings
        request.handoff = arrival.figures(
            now, page_bytes=sizes.page_bytes, row_bytes=sizes.row_bytes
        )
        self.counts["handoffs"] += 1
        self.handoff_seconds += request.handoff.total_seconds
        self._batch.committed.append(request)
        self._first_token(request, content, now)

    def _first_token(self, request: Request, content: RowContent, now: float) -> None:
        request.output.append(content.token)
        step = StepResult(
            key=request.key, token=content.token, logprob=content.logprob, top=content.top
        )
        self.token(request, step, now=now)

    # ---------------------------------------------------------------------------------- time
    def tick(self, now: float, *, engine_idle: bool) -> None:
        """Deadlines, handshakes, admission, heartbeats, and the next pass if the engine is idle."""
        self._deadlines(now)
        for request in list(self._handshake):
            self._reach(request, now)
        self._book.tick(now)
        self._peers.tick(now, rooms=self._held_rooms, needed=self._needed, draining=self.draining)
        self._note_changes(now)
        self._remind(now)
        if self._batch.retracted:
            self._batch.resume(now, budget=self._resume_budget())
        self._admit(now)
        if engine_idle and (steps := self._decode_steps(now)):
            self.outbox.append(Launch(steps))

    def _resume_budget(self) -> int:
        """Without the claim of the retracted themselves (spec C 11)."""
        free = self.pools.pages.count().free * self.settings.page_tokens
        active = self._transferring() + len(self._batch.running)
        return free - self.settings.reserved_decode_tokens * active

    def _transferring(self) -> int:
        return sum(1 for r in self._by_key.values() if r.stage is Stage.TRANSFER)

    def _overdue(self, request: Request, now: float) -> None:
        waited = f"after {now - request.since:.1f} s"
        match request.stage:
            case Stage.HANDSHAKE if request.hop is not None:
                error: WorkerError = HandshakeTimeout(
                    self._book.trouble((request.hop.host, request.hop.port))
                )
            case Stage.TRANSFER:
                error = TransferTimeout(f"the KV did not arrive {waited}")
            case Stage.DEFERRED:
                return
            case _:
                error = QueueTimeout(f"no memory or slot {waited}")
        self._fail(request, error, now)

    def _held_rooms(self, instance: str) -> tuple[RoomKey, ...]:
        """Rooms waiting for memory here; prefill counts them as queued, not lost (E57)."""
        return tuple((r.room, 0) for r in self._prealloc if r.peer == instance)
