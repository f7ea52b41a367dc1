"""The prefill side of a hand-off.

    1. submit                      -> BOOTSTRAP  no decode has published pages for the room yet
    2. Publish from a warm peer    -> WAITING    the destination is known
    3. pages and a row are free    -> FORWARD    the prompt is computed chunk by chunk; whole pages
                                                 of a chunk are sent while the next one computes
    4. the last chunk is computed  -> INFLIGHT   the row is filled; last pages and the row are sent
    5. every write is settled      -> gone       the client gets its token, decode its figures

Any failure before 3 ends the request at once; later it is DEFERRED, its pages pinned until the
engine and every write are quiet; then decode gets its AbortAck, the proof it needs to reuse its
own pages.
"""

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import (
    BootstrapTimeout,
    EngineError,
    PeerIncompatible,
    PeerLost,
    RoomConflict,
    TransferPeerLost,
    WorkerError,
)
from pdcluster_worker.core.ports import BatchResult, StepResult, WriteStats
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.base import Cause, Pipeline, PipelineSettings
from pdcluster_worker.pipeline.effects import Effect, Launch
from pdcluster_worker.pipeline.legs import Legs, ended_by_decode
from pdcluster_worker.pipeline.peers import Change, PeerTable
from pdcluster_worker.pipeline.prefill_table import TABLE, Action, Event, overdue
from pdcluster_worker.pipeline.prompts import PromptQueue
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.pipeline.sending import Hand, Orphan, Sender, hand_of
from pdcluster_worker.pipeline.table import Walker
from pdcluster_worker.wire.local import Hop, Submit
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import (
    Abort,
    Alive,
    Body,
    Bye,
    Hello,
    Publish,
    RoomKey,
)


class PrefillPipeline(Pipeline):
    """Queues and life cycles of one prefill scheduler."""

    def __init__(
        self,
        settings: PipelineSettings,
        pools: Pools,
        *,
        peers: PeerTable,
        outbox: list[Effect],
        instance: str,
    ) -> None:
        super().__init__(settings, pools, outbox)
        self._peers = peers
        self._sender = Sender(settings, peers=peers, emit=outbox.append, instance=instance)
        self._hands: dict[int, Hand] = {}
        self._prompts = PromptQueue(chunk_tokens=settings.chunk_tokens)
        self._legs = Legs(settings.limits)
        self.walker: Walker[Event, Action] = Walker(TABLE)

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
        if row.target not in (Stage.WAITING, Stage.FORWARD):
            self._prompts.remove(request)
        if row.target is None:
            if (hand := self._hands.pop(request.key, None)) is not None:
                self._legs.concluded.add(hand.instance, hand.publish.generation)
            self._forget(request, now)
        elif row.target is Stage.DEFERRED:
            self._settle(request, now)

    def _within(self, stage: Stage) -> float:
        limits = self.settings.limits
        if stage is Stage.BOOTSTRAP:
            return limits.bootstrap_timeout_s
        if stage is Stage.INFLIGHT:
            return limits.transfer_timeout_s
        return limits.queue_timeout_s

    def _act(self, request: Request, action: Action, now: float, cause: Cause | None) -> None:
        hand = self._hands.get(request.key)
        match action:
            case Action.SEND_PAGES if hand is not None:
                self._sender.pages(request, hand, now=now)
            case Action.SEND_LAST if hand is not None:
                self._sender.last(request, hand, now=now)
            case Action.DISCARD if hand is not None:
                self._sender.discard(hand)
            case Action.REPORT if hand is not None:
                self._count_handoff(request, hand, now)
            case Action.TELL if hand is not None and cause is not None and not cause.by_peer:
                quiet = request.stage is not Stage.DEFERRED
                self._sender.refuse(hand.published, cause.error, quiescent=quiet)
            case Action.BURY if hand is None and cause is not None and not cause.by_peer:
                self._legs.refuse(request.room, cause.error, now=now)
            case Action.ACK if hand is not None:
                self._sender.ack(hand.instance, hand.room)
            case Action.RELEASE if request.lease is not None:
                request.lease.release()
            case Action.ANSWER:
                self._answer(request)
            case Action.ANSWER_FAILURE if cause is not None:
                self._answer_failure(request, cause.error)
            case _:
                pass

    # ----------------------------------------------------------------------------- intake
    def _started(self, request: Request, now: float) -> None:
        self._apply(request, Event.SUBMITTED, now)
        if (error := self._legs.reopen(request.room)) is not None:
            self._apply(request, Event.FAILED, now, Cause(error, by_peer=True))
        elif (orphan := self._legs.claim(request.room)) is not None:
            self._published(request, *orphan, now)

    def _refuse(self, message: Submit, error: WorkerError, now: float) -> None:
        super()._refuse(message, error, now)
        if message.hop is not None and not isinstance(error, RoomConflict):
            self._end_other_leg(message.hop, error, now)

    def _end_other_leg(self, hop: Hop, error: WorkerError, now: float) -> None:
        if (orphan := self._legs.refuse(hop.room, error, now=now)) is not None:
            self._decline(orphan, error)

    def _decline(self, orphan: Orphan, error: WorkerError) -> None:
        """A Publish that will not be acted upon, now or when it is delivered again."""
        self._legs.concluded.add(orphan[0], orphan[1].generation)
        self._sender.refuse(orphan, error, quiescent=True)

    # ------------------------------------------------------------------------------ frames
    def frame(self, sender: str, body: Body, *, now: float) -> None:
        """A control frame from a decode."""
        self._peers.heard(sender, now)
        match body:
            case Hello():
                self._hello(sender, body, now)
            case Publish():
                self._publish(sender, body, now)
            case Abort():
                self._abort_by_peer(sender, body, now)
            case Alive():
                self._alive(sender, body, now)
            case Bye():
                self._peers.gone(sender)
            case _:
                self.counts["frames_unexpected"] += 1
        self._note_changes(now)

    def _hello(self, sender: str, hello: Hello, now: float) -> None:
        try:
            self._peers.check(hello.intro)
        except PeerIncompatible as error:
            self.handshake_failures[error.kind] += 1
            self._peers.unwelcome(sender, hello.intro, error=error)
            return
        self._peers.met(sender, hello, now=now)

    def _publish(self, sender: str, publish: Publish, now: float) -> None:
        if (sender, publish.generation) in self._legs.concluded:
            self.counts["frames_unexpected"] += 1
            return
        if (error := self._legs.refused(publish.room)) is not None:
            self._decline((sender, publish), error)
            return
        request = self._by_room.get(publish.room)
        if request is None:
            for orphan in self._legs.keep(sender, publish, now=now):
                lost = RoomConflict("the room was published again, or too many are waiting")
                self._decline(orphan, lost)
            return
        hand = self._hands.get(request.key)
        if hand is None and request.stage is Stage.BOOTSTRAP:
            self._published(request, sender, publish, now)
        elif hand is None or (hand.instance, hand.publish) != (sender, publish):
            conflict = RoomConflict(f"room {publish.room} is in use")
            self._decline((sender, publish), conflict)

    def _published(self, request: Request, sender: str, publish: Publish, now: float) -> None:
        hand = self._hands[request.key] = hand_of(sender, publish)
        expected = self.settings.pages_for(len(request.prompt)) - publish.start_page
        if error := hand.contradiction(request, expected):
            self._apply(request, Event.FAILED, now, Cause(error))
            return
        self._warm(request, now)

    def _warm(self, request: Request, now: float) -> None:
        hand = self._hands[request.key]
        if self._peers.ready(hand.instance) is None:
            self._peers.rejoin(hand.instance)
            return
        self._prompts.waiting.append(request)
        self._apply(request, Event.PUBLISHED, now)

    def _abort_by_peer(self, sender: str, abort: Abort, now: float) -> None:
        error = ended_by_decode(abort)
        request = self._by_room.get(abort.room)
        hand = self._hands.get(request.key) if request is not None else None
        key = (sender, abort.generation)
        if request is not None and hand is not None:
            if (hand.instance, hand.publish.generation) == key:
                self._apply(request, Event.FAILED, now, Cause(error, by_peer=True))
                return
        elif key not in self._legs.concluded:
            if request is None:
                self._legs.abort(sender, abort, error=error, now=now)
            else:  # its Publish was lost, or never sent
                self._apply(request, Event.FAILED, now, Cause(error, by_peer=True))
        if abort.generation:
            self._legs.concluded.add(*key)
            self._sender.ack(sender, (abort.room, abort.generation))

    def _alive(self, sender: str, alive: Alive, now: float) -> None:
        if (peer := self._peers.get(sender)) is not None:
            peer.draining = alive.draining
        limits = self.settings.limits
        for room, _ in alive.rooms:  # decode holds it, memory-blocked: queued, not dead (E57)
            request = self._by_room.get(room)
            if request is not None and request.stage is Stage.BOOTSTRAP:
                cap = request.since + limits.queue_timeout_s
                request.deadline = min(now + limits.bootstrap_timeout_s, cap)

    # -------------------------------------------------------------------- engine and writes
    def batch_done(self, result: BatchResult, now: float) -> None:
        """Account for a pass; sends are queued and posted after the next launch."""
        for step in self.outcomes(result):
            request = self._by_key.get(step.key)
            if request is None or not request.computing:
                continue
            request.computing = False
            if request.stage is Stage.DEFERRED:
                self._settle(request, now)
            elif result.error is not None:
                self._fail(request, EngineError(result.error), now)
            else:
                self._advance(request, step, now)

    def _advance(self, request: Request, step: StepResult, now: float) -> None:
        request.computed += request.pass_tokens
        request.scores += step.scores
        self.counts["prompt_tokens"] += request.pass_tokens
        if request.computed < len(request.prompt):
            self._apply(request, Event.CHUNK, now)
            return
        request.first = step
        self._apply(request, Event.COMPUTED, now)

    def write_done(self, key: int, instance: str, *, stats: WriteStats, now: float) -> None:
        """One of a request's writes, or a handshake's warm-up (key 0)."""
        if key == 0:
            self._peers.warm_written(instance)
            self._note_changes(now)
            return
        hand = self._hands.get(key)
        request = self._by_key.get(key)
        if hand is None or request is None:
            return
        hand.open_writes -= 1
        hand.bytes += stats.bytes
        hand.descriptors += stats.descriptors
        self._settle(request, now)

    def write_failed(self, key: int, instance: str, *, error: WorkerError, now: float) -> None:
        """The request fails; its pages stay pinned until `write_settled`."""
        if key == 0 or isinstance(error, TransferPeerLost):
            self._peers.broken(instance)
            self._note_changes(now)
        request = self._by_key.get(key)
        if request is not None:
            self._fail(request, error, now)

    def write_settled(self, key: int, now: float) -> None:
        """A failed write is quiet."""
        hand = self._hands.get(key)
        request = self._by_key.get(key)
        if hand is not None and request is not None:
            hand.open_writes -= 1
            self._settle(request, now)

    def _settle(self, request: Request, now: float) -> None:
        hand = self._hands.get(request.key)
        if request.computing or (hand is not None and hand.open_writes):
            return
        if request.stage is Stage.INFLIGHT:
            self._apply(request, Event.SETTLED, now)
        elif request.stage is Stage.DEFERRED:
            self._apply(request, Event.QUIET, now)

    # ---------------------------------------------------------------------------------- time
    def tick(self, now: float, *, engine_idle: bool) -> None:
        """Deadlines, heartbeats, and the next pass if the engine is idle."""
        self._note_changes(now)
        for request in [r for r in self._by_key.values() if now >= r.deadline]:
            self._overdue(request, now)
        for orphan in self._legs.expire(now):
            late = BootstrapTimeout(f"no request came for room {orphan[1].room}")
            self._decline(orphan, late)
        self._peers.tick(now, rooms=self._held_rooms, needed=self._needed, draining=self.draining)
        self._note_changes(now)
        if engine_idle:
            self._launch(now)

    def _overdue(self, request: Request, now: float) -> None:
        if error := overdue(request.stage, now - request.since):
            self._fail(request, error, now)

    def _held_rooms(self, instance: str) -> tuple[RoomKey, ...]:
        return tuple(h.room for h in self._hands.values() if h.instance == instance)

    def _needed(self, instance: str) -> bool:
        return any(hand.instance == instance for hand in self._hands.values())

    def _note_changes(self, now: float) -> None:
        for change, instance in self._peers.take_changes():
            if change is Change.GONE:
                self._legs.gone(instance)
            mine = [
                r
                for r in self._by_key.values()
                if (hand := self._hands.get(r.key)) is not None and hand.instance == instance
            ]
            for request in mine:
                if change is not Change.READY:
                    self._fail(request, PeerLost("the decode of this request is lost"), now)
                elif request.stage is Stage.BOOTSTRAP:
                    self._warm(request, now)

    def _fail(self, request: Request, error: WorkerError, now: float) -> None:
        self._apply(request, Event.FAILED, now, Cause(error))

    def _launch(self, now: float) -> None:
        for request in self._prompts.admit(self._lend):
            self._apply(request, Event.ADMITTED, now)
        if steps := self._prompts.steps():
            self.outbox.append(Launch(tuple(steps)))
        for step in steps:
            if step.sample is not None:  # a prompt's last chunk: what follows it is known already
                self._sender.prepare_last(self._by_key[step.key], self._hands[step.key])

    def _lend(self, request: Request) -> bool:
        pages = self.settings.pages_for(len(request.prompt))
        request.lease = self.pools.lease(pages=pages, row=True)
        return request.lease is not None

    # --------------------------------------------------------------------------------- output
    def _answer(self, request: Request) -> None:
        assert request.first is not None
        request.output.append(request.first.token or 0)
        self.counts["output_tokens"] += 1
        self._emit_tokens(request, request.tokens_message(request.first, finish="length"))

    def _count_handoff(self, request: Request, hand: Hand, now: float) -> None:
        self._sender.report(hand, now)
        request.handoff = hand.figures(now)
        self.counts["handoffs"] += 1
        self.counts["handoff_bytes"] += hand.bytes
        self.handoff_seconds += now - hand.first_at

    def notice(self, notice: Notice, now: float) -> None:
        """Only warm-ups are written into a prefill's memory."""
        self._peers.heard(notice.writer, now)
        if notice.kind is NoticeKind.WARM:
            self._peers.warm_seen(notice.writer)
        else:
            self.counts["notices_stale"] += 1
        self._note_changes(now)

    def tables(self) -> dict[str, int]:
        """With the rooms that have one leg; see `Legs`."""
        return super().tables() | {"hands": len(self._hands)} | self._legs.sizes()

    def waiting_for_peer(self) -> bool:
        """Writes or handshakes are under way."""
        return self._peers.warming() or any(h.open_writes for h in self._hands.values())

    def farewell(self) -> list[Effect]:
        """Peers need not wait for our silence."""
        self._peers.everybody(Bye())
        return self.drain_outbox()

    def peer_states(self) -> dict[str, str]:
        """Instance -> state."""
        return self._peers.states()
