"""`Engine` for models computed with torch: weights, pool, attention, sampling, one thread."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.geometry import geometry_of
from pdcluster_worker.core.ports import BatchResult, ModelShape, Score, SequenceStep, StepResult
from pdcluster_worker.engine.attention import check_pool
from pdcluster_worker.engine.batch import Layout, lay_out
from pdcluster_worker.engine.identity import describe
from pdcluster_worker.engine.runner import PassRunner
from pdcluster_worker.engine.runners import load_model
from pdcluster_worker.engine.sampling import Choice, sample
from pdcluster_worker.engine.scoring import score
from pdcluster_worker.models.progress import Progress

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchEngine:
    """See `core.ports.Engine`. Reads and writes the pool only while a pass runs."""

    def __init__(
        self,
        folder: Path,
        spec: EngineSpec,
        *,
        pool: Tensor,
        clock: Clock,
        wake: Callable[[], None] | None,
        progress: Progress,
    ) -> None:
        self.shape: ModelShape = describe(folder, spec)
        dtype = DTYPES[self.shape.dtype]
        geometry = geometry_of(self.shape, page_tokens=spec.page_tokens)
        check_pool(pool, geometry.page_shape, dtype=dtype)
        self._threads = spec.threads
        self._pages, self._page_tokens = pool.shape[0], spec.page_tokens
        self._use_threads()
        with torch.inference_mode():
            self._model = load_model(folder, dtype=dtype, pool=pool, progress=progress)
        self._runner = PassRunner(
            self._compute, clock=clock, wake=wake, prepare_thread=self._use_threads
        )

    def launch(self, batch: Sequence[SequenceStep]) -> None:
        """See `core.ports.Engine.launch`."""
        self._runner.launch(batch)

    def poll(self) -> BatchResult | None:
        """See `core.ports.Engine.poll`."""
        return self._runner.poll()

    def busy_since(self) -> float | None:
        """See `core.ports.Engine.busy_since`."""
        return self._runner.busy_since()

    def close(self) -> None:
        """See `core.ports.Engine.close`."""
        self._runner.close()

    def debug_logits(self, batch: Sequence[SequenceStep]) -> Tensor:
        """Float32 logits ``[len(batch), vocab]`` after each step's last token; blocks.

        For tests and benchmarks: every step must have ``sample``, and no pass may be running.
        """
        if self._runner.busy_since() is not None:
            raise RuntimeError("a forward pass is running")
        layout, hidden = self._forward(batch)
        if hidden is None or len(layout.sampled) != len(batch):
            raise ValueError("every step needs sample parameters")
        row = {span.step.key: index for index, span in enumerate(layout.sampled)}
        with torch.inference_mode():
            return self._model.logits(hidden[[row[step.key] for step in batch]])

    def _compute(self, batch: Sequence[SequenceStep]) -> tuple[StepResult, ...]:
        layout, hidden = self._forward(batch)
        if hidden is None:
            return tuple(StepResult(key=step.key) for step in batch)
        with torch.inference_mode():
            chosen = self._choose(layout, hidden)
            scored = self._score(layout, hidden)
        return tuple(
            _result(step, chosen.get(step.key), scored.get(step.key, ())) for step in batch
        )

    def _choose(self, layout: Layout, hidden: Tensor) -> dict[int, Choice]:
        count = len(layout.sampled)
        if not count:
            return {}
        params = [span.step.sample for span in layout.sampled]
        # All rows unless some are scored: a few rows that mean nothing cost less than a slice.
        logits = self._model.logits(hidden[:count] if layout.scored else hidden)
        choices = sample(
            logits[:count],
            [p for p in params if p is not None],
            positions=[span.visible for span in layout.sampled],
        )
        return {s.step.key: choice for s, choice in zip(layout.sampled, choices, strict=True)}

    def _score(self, layout: Layout, hidden: Tensor) -> dict[int, tuple[Score, ...]]:
        if not layout.scored:
            return {}
        wanted = [span.step.scoring for span in layout.scored]
        found = score(
            hidden[len(layout.sampled) :],
            [s for s in wanted if s is not None],
            head=self._model.logits,
            vocab=self.shape.vocab,
        )
        return {s.step.key: scores for s, scores in zip(layout.scored, found, strict=True)}

    def _forward(self, batch: Sequence[SequenceStep]) -> tuple[Layout, Tensor | None]:
        layout = lay_out(batch, page_tokens=self._page_tokens, pages=self._pages)
        with torch.inference_mode():
            return layout, self._model.forward(layout)

    def _use_threads(self) -> None:
        """Per thread, since OpenMP keeps the number per thread."""
        torch.set_num_threads(self._threads)


def _result(step: SequenceStep, choice: Choice | None, scores: tuple[Score, ...]) -> StepResult:
    if choice is None:
        return StepResult(key=step.key, scores=scores)
    return StepResult(
        key=step.key, token=choice.token, logprob=choice.logprob, top=choice.top, scores=scores
    )
