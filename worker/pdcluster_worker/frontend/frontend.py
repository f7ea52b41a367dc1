"""What every handler shares, and what it knows of one HTTP request."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import Draining, Unavailable, WorkerError
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.calls import CallContext, make_requests, shape_of
from pdcluster_worker.frontend.generation import Generation, GenerationRequest, Surroundings
from pdcluster_worker.frontend.legs import make_hops
from pdcluster_worker.frontend.link import SchedulerLink
from pdcluster_worker.frontend.metrics import FrontendMetrics
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import parse_object
from pdcluster_worker.frontend.text import Tokenizer
from pdcluster_worker.rendezvous.view import State, View
from pdcluster_worker.wire.local import Hop, Ready


@dataclass(slots=True, kw_only=True)
class Frontend:
    """One worker's frontend."""

    settings: Settings
    link: SchedulerLink
    tokenizer: Tokenizer
    clock: Clock
    metrics: FrontendMetrics
    draining: bool = False  # set once, by whoever ends the process
    scheduler: View | None = None  # what `watch` sees of it; None until it looks
    live: set[Generation] = field(default_factory=set)  # until their HTTP request is over

    def serving(self) -> Ready:
        """The scheduler's announcement; Unavailable while requests cannot be taken."""
        if self.draining:
            raise Draining("this worker is draining")
        if self.link.ready is None:
            raise Unavailable(self.link.absence)
        self.check_live()
        return self.link.ready

    def check_live(self) -> None:
        """Unavailable while only a restart would help."""
        if self.scheduler is not None and not self.scheduler.live:
            raise Unavailable(self.scheduler.reason)

    def check_ready(self) -> None:
        """Unavailable while new requests should go elsewhere.

        Those that come in spite of it are taken: a scheduler that is late for a moment serves them.
        """
        self.serving()
        view = self.scheduler
        hung = view is not None and view.state is State.HUNG
        if view is not None and (hung or (view.status is not None and not view.ready)):
            raise Unavailable(view.reason)


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """One HTTP request: its body is read, its generations are closed by the dispatcher."""

    frontend: Frontend
    body: bytes
    query: Mapping[str, str]
    headers: Mapping[str, str]
    received_s: float  # clock seconds
    created: int  # seconds since the epoch, as OpenAI's `created`
    generations: list[Generation] = field(default_factory=list)

    def object(self) -> dict[str, Any]:
        """The body's JSON object, with what headers override; BadRequest otherwise."""
        return parse_object(self.body, self.headers)

    async def start(
        self, items: Sequence[Params], *, hops: Sequence[Hop | None] | None = None
    ) -> list[Generation]:
        """Tokenize and submit every request of the call, one item for each prompt.

        A failure ends the other legs too: theirs may have begun already. ``hops`` are for a probe,
        which has no other leg.
        """
        frontend = self.frontend
        if hops is None:
            hops = make_hops(items[0], frontend.settings, shape=shape_of(items))
        try:
            context = CallContext(
                settings=frontend.settings,
                tokenizer=frontend.tokenizer,
                ready=frontend.serving(),
                received_s=self.received_s,
            )
            for request in await make_requests(items, context, hops=hops):
                generation = self._generation(request)
                self.generations.append(generation)
                frontend.live.add(generation)
        except WorkerError as error:
            for hop in hops[len(self.generations) :]:
                if hop is not None:
                    frontend.link.decline(hop, error)
            raise
        return self.generations

    def close(self) -> None:
        """Abort what has not ended. Idempotent."""
        for generation in self.generations:
            generation.close()
            self.frontend.live.discard(generation)

    def _generation(self, request: GenerationRequest) -> Generation:
        frontend = self.frontend
        around = Surroundings(
            link=frontend.link,
            tokenizer=frontend.tokenizer,
            metrics=frontend.metrics,
            clock=frontend.clock,
        )
        return Generation(request, around)


Handler = Callable[[Inquiry], Coroutine[Any, Any, ASGIApp]]
