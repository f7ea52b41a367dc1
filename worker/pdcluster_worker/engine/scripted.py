"""A model made of arithmetic, that moves real bytes: the engine's double.

Its KV row for (token, position) is a pure function, written as bytes into the pool's own layout.
Its next token is a hash of the KV bytes that it *reads* through the sequence's pages. So a page
that was handed over wrongly, freed too early or written by somebody else gives another token, and
`reference` says, without any pool, which token was right. Torch-free.

    launch -> waits ``duration(batch)`` of the injected clock -> poll computes, writes, answers

Pages are read and written when the pass ends, so damage during a pass is seen too.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.geometry import DTYPE_BYTES, KVGeometry
from pdcluster_worker.core.ports import (
    BatchResult,
    ModelShape,
    SampleParams,
    Score,
    Scoring,
    SequenceStep,
    StepResult,
)

Bytes = NDArray[np.uint8]
Duration = Callable[[Sequence[SequenceStep]], float]


def instant(_batch: Sequence[SequenceStep]) -> float:
    """A duration of nothing: the first poll has the result."""
    return 0.0


class ScriptedEngine:
    """See `core.ports.Engine`.

    ``pool`` is uint8 ``[pages, geometry.page_bytes]``, the caller's. ``fail_next`` set to a text
    makes the next pass end with that error and write nothing.
    """

    def __init__(
        self,
        shape: ModelShape,
        geometry: KVGeometry,
        pool: Bytes,
        *,
        clock: Clock,
        duration: Duration = instant,
    ) -> None:
        if pool.dtype != np.uint8 or pool.ndim != 2 or pool.shape[1] != geometry.page_bytes:
            raise ValueError(f"the pool is {pool.shape}, expected [pages, {geometry.page_bytes}]")
        self.shape = shape
        self.fail_next: str | None = None
        self._geometry = geometry
        self._pages = pool.reshape(
            len(pool),
            geometry.layers * 2 * geometry.head_count,
            geometry.page_tokens,
            geometry.head_dim * DTYPE_BYTES[geometry.dtype],
        )
        self._clock = clock
        self._duration = duration
        self._batch: tuple[SequenceStep, ...] | None = None
        self._started = self._ends = 0.0

    def launch(self, batch: Sequence[SequenceStep]) -> None:
        """See `core.ports.Engine.launch`."""
        if self._batch is not None:
            raise RuntimeError("a forward pass is still running")
        if not batch:
            raise ValueError("a batch has at least one step")
        self._batch = tuple(batch)
        self._started = self._clock.now()
        self._ends = self._started + self._duration(self._batch)

    def poll(self) -> BatchResult | None:
        """See `core.ports.Engine.poll`."""
        if self._batch is None or self._clock.now() < self._ends:
            return None
        batch, self._batch = self._batch, None
        error, self.fail_next = self.fail_next, None
        results = tuple(self._run(step) for step in batch) if error is None else ()
        return BatchResult(results=results, seconds=self._ends - self._started, error=error)

    def busy_since(self) -> float | None:
        """See `core.ports.Engine.busy_since`."""
        return None if self._batch is None else self._started

    def ready_at(self) -> float | None:
        """Clock time from which `poll` has the result: where a virtual clock may jump to."""
        return None if self._batch is None else self._ends

    def close(self) -> None:
        """Forget the running pass."""
        self._batch = None

    def _run(self, step: SequenceStep) -> StepResult:
        end = step.start + len(step.tokens)
        positions = np.arange(end)
        pages = step.pages[positions // self._geometry.page_tokens]
        slots = positions % self._geometry.page_tokens
        new = kv_rows(self._geometry, step.tokens, start=step.start)
        self._pages[pages[step.start :], :, slots[step.start :]] = new
        rows = self._pages[pages, :, slots]
        scores = _scores(rows, step.scoring, start=step.start, vocab=self.shape.vocab)
        if step.sample is None:
            return StepResult(key=step.key, scores=scores)
        return replace(_choose(step.key, rows, step.sample, self.shape.vocab), scores=scores)


def kv_rows(geometry: KVGeometry, tokens: NDArray[np.int64], *, start: int) -> Bytes:
    """The rows of ``tokens`` at ``start`` and on: uint8 ``[n, layers * 2 * heads, row bytes]``.

    Head ``h`` of the model has the same bytes whichever head range ``geometry`` holds.
    """
    width = geometry.head_dim * DTYPE_BYTES[geometry.dtype]
    words = -(-width // 8)
    heads = geometry.head_start + np.arange(geometry.head_count)
    planes = np.arange(geometry.layers * 2)[:, None] * geometry.kv_heads + heads
    counter = planes.reshape(-1, 1) * words + np.arange(words)
    seeds = _mix(tokens.astype(np.uint64) << np.uint64(32) | _positions(start, len(tokens)))
    mixed = _mix(seeds[:, None, None] ^ _mix(counter.astype(np.uint64))[None])
    return mixed.view(np.uint8)[:, :, :width]


def reference(
    shape: ModelShape, geometry: KVGeometry, *, prompt: Sequence[int], count: int,
    sample: SampleParams,
) -> list[int]:  # fmt: skip
    """The ``count`` tokens that follow ``prompt`` when nothing goes wrong. Needs no pool."""
    tokens = list(prompt)
    rows = kv_rows(geometry, np.array(tokens, dtype=np.int64), start=0)
    for _ in range(count):
        token = _choose(0, rows, sample, shape.vocab).token
        assert token is not None
        new = kv_rows(geometry, np.array([token], dtype=np.int64), start=len(tokens))
        rows = np.concatenate((rows, new))
        tokens.append(token)
    return tokens[len(prompt) :]


def _choose(key: int, rows: Bytes, sample: SampleParams, vocab: int) -> StepResult:
    """The token after ``rows`` ``[n, planes, row bytes]``; log-probabilities are -1, -2, ..."""
    state = hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=8)
    if sample.temperature > 0:
        state.update(f"{sample.seed} {len(rows)}".encode())
    first = int.from_bytes(state.digest(), "little") % vocab
    banned = set(sample.banned)
    ranked = [(first + i) % vocab for i in range(len(banned) + 1 + (sample.logprobs or 0))]
    token = next(candidate for candidate in ranked if candidate not in banned)
    if sample.logprobs is None:
        return StepResult(key=key, token=token)
    top = tuple((other, -1.0 - rank) for rank, other in enumerate(ranked[: sample.logprobs]))
    return StepResult(key=key, token=token, logprob=-1.0 - ranked.index(token), top=top)


def _scores(
    rows: Bytes, scoring: Scoring | None, *, start: int, vocab: int
) -> tuple[Score, ...]:  # fmt: skip
    """Of each target by what `_choose` would say after the rows before it: -1 is its choice."""
    if scoring is None:
        return ()
    first = start + scoring.row + 1
    greedy = SampleParams(logprobs=max(scoring.top, 1))
    said = [_choose(0, rows[: first + i], greedy, vocab) for i in range(len(scoring.targets))]
    return tuple(
        Score(-1.0 - (int(target) - found.top[0][0]) % vocab, found.top[: scoring.top])
        for target, found in zip(scoring.targets, said, strict=True)
    )


def _positions(start: int, count: int) -> NDArray[np.uint64]:
    return np.arange(start, start + count, dtype=np.uint64)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64's finaliser, elementwise."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
