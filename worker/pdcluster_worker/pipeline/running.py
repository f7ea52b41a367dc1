"""The running batch: who gets a page, who is pushed out. Used by decode and aggregated.

Each pass computes one token per running request. A request whose next position has no page gets
one; when none is free the request with the fewest output tokens (ties: the longest prompt) is
retracted: its KV goes to host memory and it comes back, first in, first out, before anything new
is admitted.
"""

from collections.abc import Sequence

import numpy as np

from pdcluster_worker.core.ports import SequenceStep
from pdcluster_worker.pipeline.admission import Load, Running
from pdcluster_worker.pipeline.request import Request


def victim_of(running: Sequence[Request]) -> Request:
    """Fewest output tokens first, ties to the longest prompt (spec A.3.11)."""
    return min(running, key=lambda r: (len(r.output), -len(r.prompt)))


def secure_page(request: Request, *, page_tokens: int) -> bool:
    """Make sure that the next position has a page; False when none is free."""
    assert request.lease is not None
    missing = -(-(request.computed + 1) // page_tokens) - len(request.lease.pages)
    return missing <= 0 or request.lease.grow(missing)


def next_step(request: Request) -> SequenceStep:
    """Its share of the next pass: the last token, for which there is no KV yet."""
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
