"""The continuous batch of one worker: committed requests join, run, may be retracted, finish.

    committed --join--> running --token--> running --finish--> gone
                        running --push out--> retracted --resume--> committed

The owner (decode or aggregated) supplies the life-cycle events through `BatchOwner`; this class
keeps the queues and makes the passes.
"""

from typing import Protocol

from pdcluster_worker.core.errors import EngineError, Overloaded, WorkerError
from pdcluster_worker.core.ports import BatchResult, SequenceStep, StepResult
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.pipeline.admission import resume_cost
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.pipeline.running import next_step, secure_page, victim_of


class BatchOwner(Protocol):
    """What a batch asks of the pipeline that owns it."""

    def joined(self, request: Request, now: float) -> None:
        """It is in the batch now."""
        ...

    def pushed_out(self, request: Request, now: float) -> None:
        """Save its KV and release its lease; it may fail instead."""
        ...

    def resumed(self, request: Request, now: float) -> None:
        """Its new lease is there; load its KV."""
        ...

    def token(self, request: Request, step: StepResult, *, now: float) -> None:
        """A new token, already in ``output``; finish the request if it was the last."""
        ...

    def broke(self, request: Request, error: WorkerError, *, now: float) -> None:
        """It cannot go on."""
        ...

    def released(self, request: Request, now: float) -> None:
        """It had failed while its pass ran; the pass is over."""
        ...


class Batch:
    """Queues ``committed`` and ``retracted`` (first in, first out) and the running batch."""

    def __init__(
        self, owner: BatchOwner, pools: Pools, *, page_tokens: int, running_max: int, reserved: int
    ) -> None:
        self._owner = owner
        self._pools = pools
        self._page_tokens = page_tokens
        self._running_max = running_max
        self._reserved = reserved
        self.committed: list[Request] = []
        self.running: list[Request] = []
        self.retracted: list[Request] = []

    def remove(self, request: Request) -> None:
        """The request leaves, whatever its queue."""
        for queue in (self.committed, self.running, self.retracted):
            if request in queue:
                queue.remove(request)

    def retracted_tokens(self) -> int:
        """What retracted requests will need; new ones may not take it."""
        return sum(self._resume_cost(r) for r in self.retracted)

    def _resume_cost(self, request: Request) -> int:
        growth = request.max_new - len(request.output)
        return resume_cost(
            filled=request.computed,
            growth=growth,
            reserved_per_request=self._reserved,
            page_tokens=self._page_tokens,
        )

    def join(self, now: float) -> None:
        """Committed requests take the free places."""
        while self.committed and len(self.running) < self._running_max:
            request = self.committed.pop(0)
            self.running.append(request)
            self._owner.joined(request, now)

    def resume(self, now: float, *, budget: int) -> None:
        """Retracted requests come back while ``budget`` tokens and places allow, in order (C 11).

        A page for each running request is kept back: taking the one that a retraction has just
        freed would only cause the next retraction.
        """
        budget -= self._page_tokens * len(self.running)
        while self.retracted and len(self.running) + len(self.committed) < self._running_max:
            request = self.retracted[0]
            cost = self._resume_cost(request)
            if cost > budget:
                return
            pages = -(-(request.computed + 1) // self._page_tokens)
            lease = self._pools.lease(pages=pages, row=False)
            if lease is None:
                return
            request.lease = lease
            self.retracted.pop(0)
            self.committed.append(request)
            self._owner.resumed(request, now)
            budget -= cost

    def plan(self, now: float, *, others_hold: bool) -> tuple[SequenceStep, ...]:
        """The next pass of the running batch; retracts until all who stay have a page.

        Committed requests go first: they have not begun. If the last one running still lacks a
        page, it is retracted too while somebody else holds pages (``others_hold``), so that its
        wait has a limit, and fails otherwise: nobody could ever give it one.
        """
        size = self._page_tokens
        lacking = [r for r in self.running if not secure_page(r, page_tokens=size)]
        while lacking and (self.committed or len(self.running) > 1):
            victim = victim_of(self.committed or self.running)
            self._push_out(victim, now)
            staying = [r for r in lacking if r is not victim]
            lacking = [r for r in staying if not secure_page(r, page_tokens=size)]
        if lacking and others_hold:
            self._push_out(lacking[0], now)
        elif lacking:
            error = Overloaded("out of KV memory with every other request retracted")
            self._owner.broke(lacking[0], error, now=now)
        return tuple(next_step(r) for r in self.running if r not in lacking)

    def _push_out(self, victim: Request, now: float) -> None:
        self.committed = [r for r in self.committed if r is not victim]
        self.running = [r for r in self.running if r is not victim]
        self.retracted.append(victim)
        self._owner.pushed_out(victim, now)

    def done(self, request: Request, step: StepResult, *, result: BatchResult, now: float) -> None:
        """The pass that held ``request`` has ended."""
        request.computing = False
        if request not in self.running:
            self._owner.released(request, now)
        elif result.error is not None:
            self._owner.broke(request, EngineError(result.error), now=now)
        elif step.token is not None:
            request.computed += request.pass_tokens
            request.output.append(step.token)
            self._owner.token(request, step, now=now)
