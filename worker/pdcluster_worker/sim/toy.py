"""The simulated memory and model: KV that is real bytes, tokens that depend on every one of them.

The next token is a hash of the KV values read through the request's pages, so a page that holds
somebody else's values gives a wrong token.
"""

import itertools

import numpy as np

from pdcluster_worker.core.ports import (
    BatchResult,
    PageIds,
    RowContent,
    Score,
    SequenceStep,
    StepResult,
)

PAGE_TOKENS = 4
VOCAB = 251
EOS = 0
NO_SCORE = Score(logprob=-1.0)
MASK = (1 << 64) - 1
EMPTY_ROW = RowContent(
    room=0, generation=0, token=0, prompt_tokens=0, cached_tokens=0, logprob=None, top=()
)


def mix(state: int, value: int) -> int:
    """One step of a 64-bit hash."""
    state = (state ^ value) * 0x9E3779B97F4A7C15 & MASK
    return state ^ state >> 29


def kv_value(token: int, position: int) -> int:
    """The KV 'row' of a token at a position; never 0."""
    return mix(mix(1, token), position) | 1


def next_token(values: list[int]) -> int:
    """What the model says after reading these KV values in order."""
    state = 7
    for value in values:
        state = mix(state, value)
    return state % VOCAB


def oracle(prompt: list[int], count: int) -> list[int]:
    """The fault-free answer."""
    values = [kv_value(t, p) for p, t in enumerate(prompt)]
    output: list[int] = []
    while len(output) < count:
        token = next_token(values)
        output.append(token)
        values.append(kv_value(token, len(values)))
    return output


class RowMemory:
    """`RowStore` over a list."""

    def __init__(self, rows: int) -> None:
        self.rows = [EMPTY_ROW] * rows

    def write(self, row: int, content: RowContent) -> None:
        self.rows[row] = content

    def read(self, row: int) -> RowContent:
        return self.rows[row]

    def clear(self, row: int) -> None:
        self.rows[row] = EMPTY_ROW


class HostMemory:
    """`PageStore` over a dict."""

    def __init__(self, kv: np.ndarray, pages_max: int) -> None:
        self._kv, self._left = kv, pages_max
        self._tickets = itertools.count(1)
        self.copies: dict[int, np.ndarray] = {}

    def save(self, pages: PageIds) -> int | None:
        if len(pages) > self._left:
            return None
        self._left -= len(pages)
        ticket = next(self._tickets)
        self.copies[ticket] = self._kv[pages].copy()
        return ticket

    def load(self, ticket: int, pages: PageIds) -> None:
        copy = self.copies.pop(ticket)
        self._left += len(copy)
        self._kv[pages[: len(copy)]] = copy

    def drop(self, ticket: int) -> None:
        self._left += len(self.copies.pop(ticket, ()))


class ToyEngine:
    """Reads and writes the node's KV when a pass ends; one pass at a time."""

    def __init__(self, kv: np.ndarray) -> None:
        self.kv = kv
        self.steps: tuple[SequenceStep, ...] | None = None
        self.done_at = 0.0
        self.fail_next: str | None = None  # the next pass ends with this error and no results

    def launch(self, steps: tuple[SequenceStep, ...], done_at: float) -> None:
        assert self.steps is None, "two passes at once"
        self.steps, self.done_at = steps, done_at

    def poll(self, now: float) -> BatchResult | None:
        if self.steps is None or now < self.done_at:
            return None
        error, self.fail_next = self.fail_next, None
        results = () if error else tuple(self._run(step) for step in self.steps)
        self.steps = None
        return BatchResult(results=results, seconds=0.01, error=error)

    def _run(self, step: SequenceStep) -> StepResult:
        for offset, token in enumerate(step.tokens.tolist()):
            position = step.start + offset
            page = step.pages[position // PAGE_TOKENS]
            self.kv[page, position % PAGE_TOKENS] = kv_value(token, position)
        scores = () if step.scoring is None else (NO_SCORE,) * len(step.scoring.targets)
        if step.sample is None:
            return StepResult(key=step.key, scores=scores)
        length = step.start + len(step.tokens)
        pages = step.pages[: -(-length // PAGE_TOKENS)]
        values = self.kv[pages].reshape(-1)[:length].tolist()
        return StepResult(key=step.key, token=next_token(values), logprob=-1.0, scores=scores)
