"""The base of the pipelines that decode: a batch, retraction, and tokens for the client."""

from abc import abstractmethod

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import Overloaded, WorkerError
from pdcluster_worker.core.ports import BatchResult, PageStore, SequenceStep, StepResult
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.base import Cause, Pipeline, PipelineSettings
from pdcluster_worker.pipeline.batch import Batch
from pdcluster_worker.pipeline.effects import Effect
from pdcluster_worker.pipeline.events import Event
from pdcluster_worker.pipeline.finish import finish_of
from pdcluster_worker.pipeline.request import Request


class BatchPipeline(Pipeline):
    """Implements `BatchOwner` over a life-cycle table that uses `Event`."""

    def __init__(
        self, settings: PipelineSettings, pools: Pools, outbox: list[Effect], *, host: PageStore
    ) -> None:
        super().__init__(settings, pools, outbox)
        self._host = host
        self._batch = Batch(
            self,
            pools,
            page_tokens=settings.page_tokens,
            running_max=settings.running_max,
            reserved=settings.reserved_decode_tokens,
        )

    @abstractmethod
    def _apply(
        self, request: Request, event: Event, now: float, cause: Cause | None = None
    ) -> None:
        """Walk the role's table."""

    @abstractmethod
    def _settle(self, request: Request, now: float) -> None:
        """End a deferred request if nothing touches its pages any more."""

    def _fail(self, request: Request, error: WorkerError, now: float) -> None:
        self._apply(request, Event.FAILED, now, Cause(error))

    # ------------------------------------------------------------------- BatchOwner's side
    def joined(self, request: Request, now: float) -> None:
        """It is in the batch now."""
        self._apply(request, Event.JOINED, now)

    def pushed_out(self, request: Request, now: float) -> None:
        """Save its KV and release its lease; without room on the host it fails (spec A.3.11)."""
        assert request.lease is not None
        filled = self.settings.pages_for(request.computed)
        request.host_ticket = self._host.save(request.lease.pages[:filled])
        if request.host_ticket is None:
            self._fail(request, Overloaded("no host memory left for a retracted request"), now)
            return
        self.counts["retractions"] += 1
        self._apply(request, Event.PUSHED_OUT, now)

    def resumed(self, request: Request, now: float) -> None:
        """Load its KV into the new lease."""
        assert request.lease is not None
        assert request.host_ticket is not None
        self._host.load(request.host_ticket, request.lease.pages)
        request.host_ticket = None
        self._apply(request, Event.RESUMED, now)

    def token(self, request: Request, step: StepResult, *, now: float) -> None:
        """A new token, already in ``output``."""
        assert step.token is not None
        self.counts["output_tokens"] += 1
        finish, matched = finish_of(request, step.token)
        self._emit_tokens(request, request.tokens_message(step, finish=finish, matched=matched))
        if finish is not None:
            self._apply(request, Event.FINISHED, now)

    def broke(self, request: Request, error: WorkerError, *, now: float) -> None:
        """It cannot go on."""
        self._fail(request, error, now)

    def released(self, request: Request, now: float) -> None:
        """It had failed while its pass ran; the pass is over."""
        self._settle(request, now)

    # --------------------------------------------------------------------------- the engine
    def batch_done(self, result: BatchResult, now: float) -> None:
        """Account for a pass."""
        for step in self.outcomes(result):
            request = self._by_key.get(step.key)
            if request is None or not request.computing:
                continue
            if request.stage is Stage.FORWARD:
                self._prompt_done(request, step, result, now)
            else:
                self._batch.done(request, step, result=result, now=now)

    def _prompt_done(
        self, request: Request, step: StepResult, result: BatchResult, now: float
    ) -> None:
        """A chunk of a prompt was computed here; decode never computes prompts."""
        raise NotImplementedError

    def _decode_steps(self, now: float) -> tuple[SequenceStep, ...]:
        self._batch.join(now)
        running = len(self._batch.running)
        others = sum(1 for r in self._by_key.values() if r.lease is not None) - running
        return self._batch.plan(now, others_hold=others > 0)

    def _deadlines(self, now: float) -> None:
        for request in [r for r in self._by_key.values() if now >= r.deadline]:
            self._overdue(request, now)

    @abstractmethod
    def _overdue(self, request: Request, now: float) -> None:
        """The stage's time limit has passed."""
