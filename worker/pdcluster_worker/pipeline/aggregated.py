"""Prefill and decode in one worker: no hand-off. The oracle of the tests, and a fallback.

1. submit                   -> WAITING    for memory
2. pages are free           -> FORWARD    the prompt is computed, chunk by chunk
3. the last chunk is done   -> COMMITTED  its token is the first answer
4. a place in the batch     -> RUNNING    one token a pass, in the same passes as others' chunks
   no page for the next     -> RETRACTED  KV in host memory; comes back before new ones
"""

from enum import StrEnum
from typing import ClassVar, Final

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import EngineError, QueueTimeout
from pdcluster_worker.core.ports import BatchResult, PageStore, StepResult
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.admission import admits
from pdcluster_worker.pipeline.base import Cause, PipelineSettings
from pdcluster_worker.pipeline.batch_pipeline import BatchPipeline
from pdcluster_worker.pipeline.effects import Effect, Launch
from pdcluster_worker.pipeline.events import Event
from pdcluster_worker.pipeline.prompts import PromptQueue
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.pipeline.running import load_of
from pdcluster_worker.pipeline.table import Row, Table, Walker


class Action(StrEnum):
    """What is done on the way."""

    FIRST = "hand on the first token"
    DROP = "drop the host copy"
    RELEASE = "release the lease"
    ANSWER_FAILURE = "answer the failure"


TABLE: Final[Table[Event, Action]] = {
    (None, Event.SUBMITTED): Row(Stage.WAITING),
    (Stage.WAITING, Event.ADMITTED): Row(Stage.FORWARD),
    (Stage.FORWARD, Event.CHUNK): Row(Stage.FORWARD),
    # Nobody is committed for longer than a turn: prompts are computed for free places only.
    (Stage.FORWARD, Event.COMPUTED): Row(Stage.COMMITTED, (Action.FIRST,)),
    (Stage.COMMITTED, Event.JOINED): Row(Stage.RUNNING),
    (Stage.COMMITTED, Event.FINISHED): Row(None, (Action.RELEASE,)),
    (Stage.RUNNING, Event.FINISHED): Row(None, (Action.RELEASE,)),
    (Stage.RUNNING, Event.PUSHED_OUT): Row(Stage.RETRACTED, (Action.RELEASE,)),
    (Stage.RETRACTED, Event.RESUMED): Row(Stage.COMMITTED),
    (Stage.WAITING, Event.FAILED): Row(None, (Action.ANSWER_FAILURE,)),
    (Stage.FORWARD, Event.FAILED): Row(Stage.DEFERRED, (Action.ANSWER_FAILURE,)),
    (Stage.RUNNING, Event.FAILED): Row(Stage.DEFERRED, (Action.ANSWER_FAILURE,)),
    (Stage.RETRACTED, Event.FAILED): Row(None, (Action.DROP, Action.ANSWER_FAILURE)),
    (Stage.DEFERRED, Event.FAILED): Row(Stage.DEFERRED),
    (Stage.DEFERRED, Event.QUIET): Row(None, (Action.RELEASE,)),
}


class AggregatedPipeline(BatchPipeline):
    """Queues and life cycles of one aggregated scheduler."""

    needs_room: ClassVar[bool] = False

    def __init__(
        self, settings: PipelineSettings, pools: Pools, *, host: PageStore, outbox: list[Effect]
    ) -> None:
        super().__init__(settings, pools, outbox, host=host)
        self._prompts = PromptQueue(chunk_tokens=settings.chunk_tokens)
        self.walker: Walker[Event, Action] = Walker(TABLE)

    def _apply(
        self, request: Request, event: Event, now: float, cause: Cause | None = None
    ) -> None:
        row = self.walker.step(request.stage, event)
        if row is None:
            return
        self._blame(request, cause)
        if row.target is not None:
            self._enter(request, row.target, now, within_s=self._within(row.target))
        if row.target not in (Stage.WAITING, Stage.FORWARD):
            self._prompts.remove(request)
        for action in row.actions:
            self._act(request, action, now, cause)
        if event is Event.FAILED or row.target is None:
            self._batch.remove(request)
        if row.target is None:
            self._forget(request, now)
        elif row.target is Stage.DEFERRED:
            self._settle(request, now)

    def _within(self, stage: Stage) -> float:
        if stage in (Stage.WAITING, Stage.RETRACTED):
            return self.settings.limits.queue_timeout_s
        return float("inf")  # bounded by max_new_tokens and the engine's own limit

    def _act(self, request: Request, action: Action, now: float, cause: Cause | None) -> None:
        match action:
            case Action.FIRST if request.first is not None:
                self._batch.committed.append(request)
                request.output.append(request.first.token or 0)
                self.token(request, request.first, now=now)
            case Action.DROP if request.host_ticket is not None:
                self._host.drop(request.host_ticket)
            case Action.RELEASE if request.lease is not None:
                request.lease.release()
                request.lease = None
            case Action.ANSWER_FAILURE if cause is not None:
                self._answer_failure(request, cause.error)
            case _:
                pass

    def _settle(self, request: Request, now: float) -> None:
        if request.stage is Stage.DEFERRED and not request.computing:
            self._apply(request, Event.QUIET, now)

    def _started(self, request: Request, now: float) -> None:
        self._prompts.waiting.append(request)
        self._apply(request, Event.SUBMITTED, now)

    def _prompt_done(
        self, request: Request, step: StepResult, result: BatchResult, now: float
    ) -> None:
        request.computing = False
        if result.error is not None:
            self._fail(request, EngineError(result.error), now)
            return
        request.computed += request.pass_tokens
        request.scores += step.scores
        self.counts["prompt_tokens"] += request.pass_tokens
        if request.computed < len(request.prompt):
            self._apply(request, Event.CHUNK, now)
            return
        request.first = step
        self._apply(request, Event.COMPUTED, now)

    def tick(self, now: float, *, engine_idle: bool) -> None:
        """Deadlines, admission, and the next pass if the engine is idle."""
        self._deadlines(now)
        if not engine_idle:
            return
        if self._batch.retracted:
            free = self.pools.pages.count().free * self.settings.page_tokens
            reserve = self.settings.reserved_decode_tokens * len(self._batch.running)
            self._batch.resume(now, budget=free - reserve)
        for request in self._prompts.admit(self._lend):
            self._apply(request, Event.ADMITTED, now)
        steps = (*self._decode_steps(now), *self._prompts.steps())
        if steps:
            self.outbox.append(Launch(steps))

    def _lend(self, request: Request) -> bool:
        batch = self._batch
        taken = len(self._prompts.forward) + len(batch.committed) + len(batch.running)
        if taken >= self.settings.running_max:
            return False
        load = load_of(
            self._batch.running,
            transferring=len(self._prompts.forward),
            waiting=len(self._batch.committed),
            retracted_tokens=self._batch.retracted_tokens(),
        )
        if not admits(
            prompt=len(request.prompt),
            max_new=request.max_new,
            available=self.pools.pages.count().free * self.settings.page_tokens,
            load=load,
            reserved_per_request=self.settings.reserved_decode_tokens,
            page_tokens=self.settings.page_tokens,
        ):
            return False
        pages = self.settings.pages_for(len(request.prompt))
        request.lease = self.pools.lease(pages=pages, row=False)
        return request.lease is not None

    def _overdue(self, request: Request, now: float) -> None:
        if request.stage is not Stage.DEFERRED:
            waited = now - request.since
            self._fail(request, QueueTimeout(f"no memory or slot after {waited:.1f} s"), now)
