"""Prompts on their way through the engine, chunk by chunk. Used by prefill and aggregated.

    waiting --admit--> forward --all chunks computed--> out

First come, first served: the head waits for its memory and nobody overtakes it (F24).
"""

from collections.abc import Callable

from pdcluster_worker.core.ports import SequenceStep
from pdcluster_worker.pipeline.batching import split_chunk
from pdcluster_worker.pipeline.request import Request


class PromptQueue:
    """``waiting`` for memory, ``forward`` being computed, both oldest first."""

    def __init__(self, *, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self.waiting: list[Request] = []
        self.forward: list[Request] = []

    def remove(self, request: Request) -> None:
        """The request leaves, wherever it is."""
        for queue in (self.waiting, self.forward):
            if request in queue:
                queue.remove(request)

    def admit(self, lend: Callable[[Request], bool]) -> list[Request]:
        """Move requests to ``forward`` while the next pass has room and ``lend`` gives a lease."""
        admitted: list[Request] = []
        budget = self._chunk_tokens - sum(len(r.prompt) - r.computed for r in self.forward)
        while self.waiting and budget > 0 and lend(self.waiting[0]):
            request = self.waiting.pop(0)
            self.forward.append(request)
            admitted.append(request)
            budget -= len(request.prompt)
        return admitted

    def steps(self) -> list[SequenceStep]:
        """The prompts' share of the next pass; only a prompt's last chunk samples a token."""
        left = [len(r.prompt) - r.computed for r in self.forward]
        shares = split_chunk(left, budget=self._chunk_tokens)
        steps: list[SequenceStep] = []
        for request, share in zip(self.forward, shares, strict=True):
            if share == 0:
                break
            assert request.lease is not None
            request.computing = True
            request.pass_tokens = share
            end = request.computed + share
            tokens = request.prompt[request.computed : end]
            final = end == len(request.prompt)
            steps.append(request.step(tokens=tokens, pages=request.lease.pages, sample=final))
        return steps
