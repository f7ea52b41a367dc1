"""The health probe: one token computed here, with no peer and no place in any queue.

    ask -> the next pass of anybody ends without an error   -> answered
           the engine is idle: a pass of the probe's own    -> answered, with the error if it failed
           the engine is idle and no page is free           -> answered: it waits for peers, not us

It holds one page while its own pass runs, and nothing else, ever (E32).
"""

from typing import Final

import numpy as np

from pdcluster_worker.core.errors import EngineError, Overloaded, WorkerError
from pdcluster_worker.core.ports import BatchResult, SampleParams, SequenceStep
from pdcluster_worker.kv.lease import Lease, Pools
from pdcluster_worker.pipeline.effects import Effect, Emit, Launch
from pdcluster_worker.wire.local import Failed, Tokens

KEY: Final = 0  # of the probe's step; requests count from 1
PROBES_MAX: Final = 64  # one pass answers them all


class Prober:
    """Probes that wait for an answer. Driven by the loop, beside the pipeline."""

    def __init__(self, pools: Pools, outbox: list[Effect]) -> None:
        self._pools = pools
        self._outbox = outbox
        self._asked: list[str] = []
        self._lease: Lease | None = None  # of the pass of our own

    @property
    def computing(self) -> bool:
        """A pass of its own runs, on a page."""
        return self._lease is not None

    def ask(self, rid: str) -> None:
        """Answer ``rid`` with one token as soon as the engine has proven to work."""
        if len(self._asked) >= PROBES_MAX:
            self._fail(rid, Overloaded(f"{PROBES_MAX} health probes are waiting"))
        else:
            self._asked.append(rid)

    def forget(self, rid: str) -> None:
        """Nobody waits for it any more. Unknown names are ignored."""
        if rid in self._asked:
            self._asked.remove(rid)

    def done(self, result: BatchResult) -> None:
        """A pass has ended."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        if result.error is None:
            self._answer()
        elif lease is not None:  # a pass of others may have failed for a reason of theirs
            asked, self._asked = self._asked, []
            for rid in asked:
                self._fail(rid, EngineError(result.error))

    def tick(self, *, engine_idle: bool) -> None:
        """After the pipeline's: start a pass if it has nothing to compute."""
        launched = any(isinstance(effect, Launch) for effect in self._outbox)
        if not self._asked or not engine_idle or launched:
            return
        self._lease = self._pools.lease(pages=1, row=False)
        if self._lease is None:
            self._answer()
            return
        step = SequenceStep(
            key=KEY,
            tokens=np.zeros(1, np.int64),
            start=0,
            pages=self._lease.pages,
            sample=SampleParams(),
        )
        self._outbox.append(Launch((step,)))

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        for rid in asked:
            message = Tokens(rid=rid, ids=(0,), finish="length", prompt_tokens=1)
            self._outbox.append(Emit(message))

    def _fail(self, rid: str, error: WorkerError) -> None:
        self._outbox.append(Emit(Failed(rid=rid, kind=error.kind, message=str(error))))
