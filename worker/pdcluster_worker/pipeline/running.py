"""The running batch: who joins, who gets a page, who is pushed out. Used by decode and aggregated.

Each pass computes one token per running request. A request whose next position has no page gets one;
when none is free the request with the fewest output tokens (ties: the longest prompt) is retracted:
its KV goes to host memory and it comes back, first in, first out, before anything new is admitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdcluster_worker.core.ports import SequenceStep
from pdcluster_worker.pipeline.admission import Load, Running
from pdcluster_worker.pipeline.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass of the running batch."""

    steps: tuple[SequenceStep, ...]
    victims: tuple[Request, ...]  # to be retracted, and none of them is in ``steps``
    stuck: Request | None  # alone, and still without a page: it cannot go on


def victim_of(running: Sequence[Request]) -> Request:
    """Fewest output tokens first, ties to the longest prompt (spec A.3.11)."""
    return min(running, key=lambda r: (len(r.output), -len(r.prompt)))


def plan_pass(running: Sequence[Request], *, page_tokens: int) -> Plan:
    """Give every running request the page it needs, retracting until it fits.

    Pages of victims come free only when the caller retracts them, so a request that still lacks one
    sits this pass out.
    """
    staying = list(running)
    victims: list[Request] = []
    lacking = [r for r in staying if not _has_page(r, page_tokens)]
    if lacking and len(staying) == 1:
        return Plan((), (), lacking[0])
    if lacking:
        victim = victim_of(staying)
        staying.remove(victim)
        victims.append(victim)
    ready = [r for r in staying if r not in lacking]
    return Plan(tuple(_step(r) for r in ready), tuple(victims), None)


def _has_page(request: Request, page_tokens: int) -> bool:
    assert request.lease is not None
    needed = -(-(request.computed + 1) // page_tokens)
    missing = needed - len(request.lease.pages)
    return missing <= 0 or request.lease.grow(missing)


def _step(request: Request) -> SequenceStep:
    assert request.lease is not None
    request.computing = True
    request.pass_tokens = 1
    last = np.array([request.output[-1]], np.int64)
    return request.step(tokens=last, pages=request.lease.pages, sample=True)


def load_of(
    running: Sequence[Request], *, transferring: int, waiting: int, retracted_tokens: int
) -> Load:
    """What the admission formula needs to know of the batch."""
    return Load(
        running=tuple(
            Running(prompt=len(r.prompt), output=len(r.output), max_new=r.max_new) for r in running
        ),
        transferring=transferring,
        waiting=waiting,
        retracted_tokens=retracted_tokens,
    )
