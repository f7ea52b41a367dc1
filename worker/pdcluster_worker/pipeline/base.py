"""What all pipelines share: intake, the registry of live requests, failures, effects, deadlines.

A pipeline is driven from one thread by calls that say what has happened; each appends effects to an
outbox that the role drains. No call blocks, and none raises for anything a client or a peer did.
"""

import itertools
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import (
    Aborted,
    BadRequest,
    Draining,
    Overloaded,
    PromptTooLong,
    Quarantined,
    RoomConflict,
    Unavailable,
    WorkerError,
    rebuild,
)
from pdcluster_worker.core.ports import BatchResult, Contact, StepResult, WriteStats
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.effects import Address, Effect, Emit, Launch
from pdcluster_worker.pipeline.probe import Prober
from pdcluster_worker.pipeline.request import Request, from_submit
from pdcluster_worker.wire.local import FAKE_HOST, Abort, Decline, Failed, Hop, Submit, Tokens
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import Body

LAST_ERRORS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """Sizes and limits of one worker."""

    capacity_tokens: int  # longest prompt, and prompt + answer
    page_tokens: int
    page_bytes: int
    row_bytes: int
    chunk_tokens: int
    running_max: int
    extra_slots: int  # decode: requests beyond ``running_max`` whose KV may arrive or wait (F26)
    reserved_decode_tokens: int
    eos_token_ids: tuple[int, ...]
    limits: LimitSpec

    def pages_for(self, tokens: int) -> int:
        """Pages that hold ``tokens`` positions."""
        return -(-tokens // self.page_tokens)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a request fails, and whether the peer said so itself (it needs no telling then)."""

    error: WorkerError
    by_peer: bool = False


class Pipeline:
    """Base of the three roles' pipelines."""

    needs_room: ClassVar[bool] = True

    def __init__(self, settings: PipelineSettings, pools: Pools, outbox: list[Effect]) -> None:
        self.settings = settings
        self.pools = pools
        self.counts: Counter[str] = Counter()  # for status and metrics; names in roles/report.py
        self.failures: Counter[str] = Counter()  # by error kind
        self.handshake_failures: Counter[str] = Counter()  # by error kind
        self.refused: Counter[str] = Counter()  # requests that never became live, by outcome
        self.last_errors: deque[str] = deque(maxlen=LAST_ERRORS_MAX)
        self.ended: list[Request] = []  # since the role last looked; for metrics and logs
        self.draining = False
        self._keys = itertools.count(1)
        self._by_key: dict[int, Request] = {}
        self._by_rid: dict[str, Request] = {}
        self._by_room: dict[int, Request] = {}
        self.outbox = outbox
        self.prober = Prober(pools, outbox)
        self.handoff_seconds = 0.0

    # ------------------------------------------------------------------ driven by the role
    def submit(self, message: Submit, now: float) -> None:
        """A new request from the frontend."""
        if message.hop is not None and message.hop.host == FAKE_HOST:
            self.prober.ask(message.rid)
            return
        try:
            request = self._intake(message)
        except WorkerError as error:
            self._refuse(message, error, now)
            return
        self._by_key[request.key] = request
        self._by_rid[request.rid] = request
        if request.room:
            self._by_room[request.room] = request
        self._started(request, now)

    def abort(self, message: Abort, now: float) -> None:
        """The frontend ends a request. Exact rid (E73)."""
        request = self._by_rid.get(message.rid)
        if request is None:
            self.prober.forget(message.rid)
            return
        if message.finished and not request.answered:
            request.answered = True
            request.outcome = "finished"
            self._by_rid.pop(message.rid, None)  # the client may use the name again
        self._fail(request, rebuild(message.kind, message.reason), now)

    def decline(self, message: Decline, now: float) -> None:
        """The frontend refused a request itself. A live one that owns the room is another's."""
        if message.hop.room not in self._by_room:
            self._end_other_leg(message.hop, rebuild(message.kind, message.message), now)

    def frame(self, sender: str, body: Body, *, now: float) -> None:
        """A control frame that the codec has checked."""

    def notice(self, notice: Notice, now: float) -> None:
        """A write of a peer has completed in our memory."""

    def resolved(self, address: Address, outcome: Contact | WorkerError, *, now: float) -> None:
        """A lookup ended."""

    def write_done(self, key: int, instance: str, *, stats: WriteStats, now: float) -> None:
        """A posted write is done and settled."""

    def write_failed(self, key: int, instance: str, *, error: WorkerError, now: float) -> None:
        """A posted write failed; it may not be settled yet."""

    def write_settled(self, key: int, now: float) -> None:
        """A failed write will certainly not touch memory any more."""

    def batch_done(self, result: BatchResult, now: float) -> None:
        """The forward pass ended."""
        raise NotImplementedError

    def tick(self, now: float, *, engine_idle: bool) -> None:
        """Time passes: deadlines, admission, and a new pass if the engine is idle."""
        raise NotImplementedError

    def drain_outbox(self) -> list[Effect]:
        """Effects in order, launches first: the engine computes while writes are posted."""
        drained = sorted(self.outbox, key=lambda effect: not isinstance(effect, Launch))
        self.outbox.clear()
        return drained

    def farewell(self) -> list[Effect]:
        """What to say to peers before the process ends with nothing under way."""
        return []

    def live(self) -> Iterable[Request]:
        """All requests that are not gone."""
        return self._by_key.values()

    def pass_tokens(self, result: BatchResult) -> int:
        """Tokens of a pass that has ended, before `batch_done` accounts for it."""
        requests = (self._by_key.get(step.key) for step in result.results)
        return sum(r.pass_tokens for r in requests if r is not None and r.computing)

    def outcomes(self, result: BatchResult) -> Iterable[StepResult]:
        """What became of each step of a pass; one that failed is everybody's who took part."""
        if result.error is None:
            return result.results
        return [StepResult(key=r.key) for r in self._by_key.values() if r.computing]

    def check_idle(self) -> None:
        """With no live request, every page and row is free. Raises RuntimeError otherwise."""
        self.pools.check()
        if self.prober.computing:
            return
        for name, count in (("pages", self.pools.pages.count()), ("rows", self.pools.rows.count())):
            if not self._by_key and count.free != count.total:
                raise RuntimeError(f"{name} leaked: no live request, but {count}")

    def stages(self) -> dict[Stage, int]:
        """Live requests by stage; stages without any are left out."""
        counted: Counter[Stage] = Counter(
            r.stage for r in self._by_key.values() if r.stage is not None
        )
        return dict(counted)

    def refusing(self) -> WorkerError | None:
        """Why new requests are refused, whatever they are; None while they are taken.

        Memory in quarantine comes back with a proof alone. Where the proof may never come, serving
        on with less and less would end in requests that all wait in vain.
        """
        if self.draining:
            return Draining("this worker is draining")
        limit = self.settings.limits.quarantine_percent_max
        for name, count in (("pages", self.pools.pages.count()), ("rows", self.pools.rows.count())):
            if limit < 100 and 100 * count.quarantined > limit * count.total:
                return Quarantined(
                    f"{count.quarantined} of {count.total} {name} are in quarantine, over {limit} %"
                )
        return None

    def tables(self) -> dict[str, int]:
        """Entries of everything that is kept per request or room: none when nothing is live."""
        return {"keys": len(self._by_key), "rids": len(self._by_rid), "rooms": len(self._by_room)}

    def waiting_for_peer(self) -> bool:
        """True while a quick answer depends on our polling the transport."""
        return False

    def peer_states(self) -> dict[str, str]:
        """Instance -> state."""
        return {}

    # ---------------------------------------------------------------------- for the roles
    def _started(self, request: Request, now: float) -> None:
        raise NotImplementedError

    def _fail(self, request: Request, error: WorkerError, now: float) -> None:
        raise NotImplementedError

    def _end_other_leg(self, hop: Hop, error: WorkerError, now: float) -> None:
        """A room will get no request here: whoever waits for it is told (E59)."""

    def _refuse(self, message: Submit, error: WorkerError, now: float) -> None:
        """Answer a request that never became live."""
        del now
        self._count_failure(message.rid, error)
        self.refused[outcome_of(error)] += 1
        field = error.field if isinstance(error, BadRequest) else None
        failed = Failed(rid=message.rid, kind=error.kind, message=str(error), field=field)
        self.outbox.append(Emit(failed))

    def _intake(self, message: Submit) -> Request:
        limits = self.settings.limits
        if (refusal := self.refusing()) is not None:
            raise refusal
        if message.rid in self._by_rid:
            raise BadRequest(f"rid {message.rid!r} is in use", field="rid")
        if len(self._by_key) >= limits.queued_requests_max:
            raise Overloaded(f"{len(self._by_key)} requests are live, the limit")
        request = from_submit(
            message,
            key=next(self._keys),
            capacity=self.settings.capacity_tokens,
            eos_token_ids=self.settings.eos_token_ids,
        )
        if len(request.prompt) < 1:
            raise BadRequest("the prompt is empty", field="input_ids")
        if len(request.prompt) > self.settings.capacity_tokens:
            raise PromptTooLong(
                f"the prompt has {len(request.prompt)} tokens, this worker holds "
                f"{self.settings.capacity_tokens}",
                field="input_ids",
            )
        if self.needs_room and message.hop is None:
            raise BadRequest("bootstrap_room is required", field="bootstrap_room")
        if request.room and request.room in self._by_room:
            raise RoomConflict(f"room {request.room} is in use")
        return request

    def _enter(self, request: Request, stage: Stage, now: float, *, within_s: float) -> None:
        """Move to a stage; ``within_s`` bounds the stay."""
        if request.stage is not None:
            spent = request.times.get(request.stage, 0.0)
            request.times[request.stage] = spent + now - request.since
        request.stage = stage
        request.since = now
        request.deadline = now + within_s

    def _forget(self, request: Request, now: float) -> None:
        """The request is gone: no table holds it any more."""
        if request.stage is not None:
            spent = request.times.get(request.stage, 0.0)
            request.times[request.stage] = spent + now - request.since
        request.stage = None
        del self._by_key[request.key]
        if self._by_rid.get(request.rid) is request:
            del self._by_rid[request.rid]
        if self._by_room.get(request.room) is request:
            del self._by_room[request.room]
        self.ended.append(request)

    def _emit_tokens(self, request: Request, message: Tokens) -> None:
        """To the frontend, unless it has had its last message (E62)."""
        if request.answered:
            return
        if message.finish is not None:
            request.answered = True
            request.outcome = "finished"
        self.outbox.append(Emit(message))

    def _answer_failure(self, request: Request, error: WorkerError) -> None:
        """Exactly one last message per request."""
        if request.answered:
            return
        request.answered = True
        request.outcome = outcome_of(error)
        request.error_kind = error.kind
        self._by_rid.pop(request.rid, None)  # the client may use the name again
        self._count_failure(request.rid, error)
        self.outbox.append(Emit(Failed(rid=request.rid, kind=error.kind, message=str(error))))

    def _blame(self, request: Request, cause: Cause | None) -> None:
        """Remember where a request failed, before its stage changes."""
        if cause is not None and request.failed_in is None:
            request.failed_in = request.stage

    def _count_failure(self, rid: str, error: WorkerError) -> None:
        self.failures[error.kind] += 1
        if not isinstance(error, BadRequest | Aborted):
            self.last_errors.append(f"{rid}: {error.kind}: {error}")


def outcome_of(error: WorkerError) -> str:
    """One of `pdcluster_api.metrics.OUTCOMES`."""
    match error:
        case Aborted():
            return "aborted"
        case BadRequest():
            return "refused"
        case Unavailable():
            return "unavailable"
        case _:
            return "failed"
