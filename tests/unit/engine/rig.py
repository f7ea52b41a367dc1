"""An engine over a small pool, its reference, and a way to run sequences through it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.geometry import geometry_of
from pdcluster_worker.core.ports import (
    BatchResult,
    ModelShape,
    PageIds,
    SampleParams,
    SequenceStep,
    StepResult,
)
from pdcluster_worker.engine import describe
from pdcluster_worker.engine.torch_engine import DTYPES, TorchEngine
from pdcluster_worker.models.progress import silent

GREEDY = SampleParams()
Ids = NDArray[np.int64]


class Rig:
    """A float32 engine of ``folder``. Its pool starts as noise: unwritten rows must not count."""

    def __init__(self, folder: Path, *, pages: int = 256, page_tokens: int = 16) -> None:
        self.spec = EngineSpec(device="cpu", dtype="float32", page_tokens=page_tokens)
        self.shape: ModelShape = describe(folder, self.spec)
        geometry = geometry_of(self.shape, page_tokens=page_tokens)
        dtype = DTYPES[self.shape.dtype]
        self.pool = torch.randn((pages, *geometry.page_shape)).to(dtype)
        self.page_tokens = page_tokens
        self.free = np.random.default_rng(5).permutation(pages).astype(np.int32)
        self.engine = TorchEngine(
            folder, self.spec, pool=self.pool, clock=SystemClock(), wake=None, progress=silent
        )

    def pages_for(self, tokens: int) -> PageIds:
        """Scattered pages nobody else has."""
        count = -(-tokens // self.page_tokens)
        assert count <= len(self.free), "the rig's pool is too small for this test"
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def run(self, batch: Sequence[SequenceStep]) -> tuple[StepResult, ...]:
        """One pass, waited for."""
        result = wait(self.engine, batch)
        assert result.error is None, result.error
        return result.results


def wait(engine: TorchEngine, batch: Sequence[SequenceStep]) -> BatchResult:
    engine.launch(batch)
    while (result := engine.poll()) is None:
        SystemClock().sleep(0.0005)
    return result


def step(
    key: int, tokens: Ids, start: int, pages: PageIds, sample: SampleParams | None = GREEDY
) -> SequenceStep:
    return SequenceStep(key=key, tokens=tokens, start=start, pages=pages, sample=sample)


def chunks(draw: np.random.Generator, count: int) -> Iterator[tuple[int, int]]:
    """Random cuts of ``0 .. count``."""
    start = 0
    while start < count:
        end = min(count, start + int(draw.integers(1, 1 + max(1, count // 2))))
        yield start, end
        start = end
