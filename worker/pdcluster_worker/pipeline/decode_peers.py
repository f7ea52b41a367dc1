"""Decode's side of the talk with prefill: frames, notices, peers that come and go.

Which prefill holds which room and generation, what it has written, whether it may still write: that
is kept per request in an `Arrival`. What follows from it for a request is in `decode`.
"""

import itertools

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import (
    PeerLost,
    RoomConflict,
    WorkerError,
    mirrored,
    rebuild,
)
from pdcluster_worker.core.ports import PageStore, WriteStats
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.base import Cause, PipelineSettings
from pdcluster_worker.pipeline.batch_pipeline import BatchPipeline
from pdcluster_worker.pipeline.contacts import AddressBook
from pdcluster_worker.pipeline.effects import Effect
from pdcluster_worker.pipeline.events import Event
from pdcluster_worker.pipeline.peers import Change, PeerTable
from pdcluster_worker.pipeline.receiving import Arrival
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.wire.local import Hop, Submit
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import (
    Abort,
    AbortAck,
    Alive,
    Body,
    Bye,
    Delivered,
    Refused,
    Rejoin,
    Unwelcome,
    Welcome,
)


class DecodePeers(BatchPipeline):
    """The half of the decode pipeline that faces prefill; `decode` adds queues and table."""

    def __init__(
        self,
        settings: PipelineSettings,
        pools: Pools,
        *,
        host: PageStore,
        peers: PeerTable,
        outbox: list[Effect],
    ) -> None:
        super().__init__(settings, pools, outbox, host=host)
        limits = settings.limits
        self._peers = peers
        self._book = AddressBook(
            peers=peers,
            emit=outbox.append,
            interval_s=limits.topology_interval_s,
            forget_s=limits.orphan_ttl_s,
            entries_max=limits.rooms_tracked_max,
        )
        self._arrivals: dict[int, Arrival] = {}
        self._generations = itertools.count(1)
        self._remind_at = 0.0

    # ------------------------------------------------------------------------------ frames
    def frame(self, sender: str, body: Body, *, now: float) -> None:
        """A control frame from a prefill."""
        self._peers.heard(sender, now)
        match body:
            case Welcome():
                self._welcome(sender, body, now)
            case Unwelcome():
                self.handshake_failures[body.kind] += 1
                self._book.refused(sender, rebuild(body.kind, body.message))
            case Rejoin():
                self._peers.broken(sender)
            case Refused():
                self._refused(sender, body, now)
            case AbortAck():
                self._acknowledged(sender, body, now)
            case Delivered():
                self._figures(body)
            case Alive():
                self._alive(sender, body, now)
            case Bye():
                self._peers.gone(sender)
            case _:
                self.counts["frames_unexpected"] += 1
        self._note_changes(now)

    def _welcome(self, sender: str, welcome: Welcome, now: float) -> None:
        try:
            self._peers.check(welcome.intro)
        except WorkerError as error:
            self.handshake_failures[error.kind] += 1
            self._book.refused(sender, error)
            return
        self._peers.met(sender, welcome, now=now)

    def _mine(self, room: int, generation: int, sender: str) -> tuple[Request, Arrival] | None:
        request = self._by_room.get(room)
        arrival = self._arrivals.get(request.key) if request is not None else None
        if request is None or arrival is None:
            return None
        if (arrival.instance, arrival.generation) != (sender, generation):
            return None
        return request, arrival

    def _refused(self, sender: str, refused: Refused, now: float) -> None:
        if (mine := self._mine(refused.room, refused.generation, sender)) is None:
            return
        request, arrival = mine
        if request.stage not in (Stage.TRANSFER, Stage.DEFERRED):
            return  # committed: a late copy
        arrival.quiet = arrival.quiet or refused.quiescent
        error = mirrored(refused.kind, refused.message)
        self._apply(request, Event.FAILED, now, Cause(error, by_peer=refused.quiescent))
        self._settle(request, now)

    def _acknowledged(self, sender: str, ack: AbortAck, now: float) -> None:
        mine = self._mine(ack.room, ack.generation, sender)
        if mine is not None and mine[1].armed:
            mine[1].quiet = True
            self._settle(mine[0], now)

    def _alive(self, sender: str, alive: Alive, now: float) -> None:
        if (peer := self._peers.get(sender)) is not None:
            peer.draining = alive.draining
        for room, generation in alive.rooms:  # prefill holds it: queued there, not lost (E57)
            mine = self._mine(room, generation, sender)
            if mine is not None and mine[0].stage is Stage.TRANSFER:
                request, arrival = mine
                extended = now + self.settings.limits.transfer_timeout_s
                request.deadline = min(extended, arrival.latest)

    def notice(self, notice: Notice, now: float) -> None:
        """A write of a prefill has completed in our memory."""
        self._peers.heard(notice.writer, now)
        if notice.kind is NoticeKind.WARM:
            self._peers.warm_seen(notice.writer)
        elif (mine := self._mine(notice.room, notice.generation, notice.writer)) is None:
            self.counts["notices_stale"] += 1  # of an ended room, or a replay (E17)
        else:
            self._written(*mine, notice, now)
        self._note_changes(now)

    def _figures(self, figures: Delivered) -> None:
        request = self._by_room.get(figures.room)
        arrival = self._arrivals.get(request.key) if request is not None else None
        if request is None or request.handoff is None or arrival is None:
            return
        if arrival.generation == figures.generation:
            request.handoff = arrival.account(request.handoff, figures)
            self.counts["handoff_bytes"] += figures.bytes

    # ---------------------------------------------------------------------- transport, engine
    def write_done(self, key: int, instance: str, *, stats: WriteStats, now: float) -> None:
        """A decode only writes warm-ups."""
        del key, stats
        self._peers.warm_written(instance)
        self._note_changes(now)

    def write_failed(self, key: int, instance: str, *, error: WorkerError, now: float) -> None:
        """A warm-up failed: the handshake starts again."""
        del key
        self.handshake_failures[error.kind] += 1
        self._peers.broken(instance)
        self._note_changes(now)

    def _remind(self, now: float) -> None:
        """Say Abort again where an acknowledgement is owed; look for lost writers' successors."""
        if now < self._remind_at:
            return
        self._remind_at = now + self.settings.limits.heartbeat_interval_s
        for request in self._by_key.values():
            arrival = self._arrivals.get(request.key)
            if request.stage is Stage.DEFERRED and arrival is not None and not arrival.quiet:
                self._peers.say(arrival.instance, arrival.abort(request.room))
                if request.hop is not None:
                    self._book.watch((request.hop.host, request.hop.port), now)

    def _note_changes(self, now: float) -> None:
        for change, instance in self._peers.take_changes():
            if change is Change.READY:
                continue  # the next tick moves its requests on
            for request in [r for r in self._by_key.values() if r.peer == instance]:
                if request.stage in (Stage.PREALLOC, Stage.TRANSFER):
                    self._fail(request, PeerLost("the prefill of this request is lost"), now)
                arrival = self._arrivals.get(request.key)
                if change is Change.GONE and arrival is not None and not arrival.quiet:
                    arrival.quiet = True  # proven: that process will never write again
                    self._settle(request, now)

    def _tell(self, request: Request, arrival: Arrival | None, cause: Cause, now: float) -> None:
        """End the other leg: by the room's generation once published, by its address before."""
        assert request.hop is not None
        if arrival is not None:
            arrival.armed = True
            arrival.reason = (cause.error.kind, str(cause.error))
            if not arrival.quiet:
                self._peers.say(arrival.instance, arrival.abort(request.room))
        elif not cause.by_peer:
            self._end_other_leg(request.hop, cause.error, now)

    def _end_other_leg(self, hop: Hop, error: WorkerError, now: float) -> None:
        abort = Abort(room=hop.room, generation=0, kind=error.kind, message=str(error))
        self._book.tell((hop.host, hop.port), abort, now=now)

    def _refuse(self, message: Submit, error: WorkerError, now: float) -> None:
        super()._refuse(message, error, now)
        if message.hop is not None and not isinstance(error, RoomConflict):
            self._end_other_leg(message.hop, error, now)  # else prefill would wait (E59)

    def _needed(self, instance: str) -> bool:
        return any(a.instance == instance for a in self._arrivals.values())

    def waiting_for_peer(self) -> bool:
        """A hand-off or a handshake is under way."""
        return self._peers.warming() or any(
            r.stage is Stage.TRANSFER for r in self._by_key.values()
        )

    def farewell(self) -> list[Effect]:
        """Peers need not wait for our silence."""
        self._peers.everybody(Bye())
        return self.drain_outbox()

    def peer_states(self) -> dict[str, str]:
        """Instance -> state."""
        return self._peers.states()

    def _written(self, request: Request, arrival: Arrival, notice: Notice, now: float) -> None:
        """A write for a live room has completed."""
        raise NotImplementedError
