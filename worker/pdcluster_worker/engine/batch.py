"""A batch of `SequenceStep` as arrays, laid out once per forward pass and used by every layer.

Rows of all sequences are concatenated: first those that add one token, ordered by how many pages
they have (so that neighbours can share one padded attention call), then the prompts. Results go
back in the caller's order through ``Layout.order``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.ports import SequenceStep

Ints = NDArray[np.int64]
NO_ROWS: Ints = np.empty(0, np.int64)
ROWS_MIN = 4  # the library's products are slower for one to three rows, by 1.1-1.3x on one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One sequence's rows in the concatenation."""

    step: SequenceStep
    begin: int  # first row
    count: int  # rows = new tokens

    @property
    def visible(self) -> int:
        """Positions that its last token attends to."""
        return self.step.start + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The concatenation. Arrays are int64 over its rows."""

    tokens: Ints  # [rows]
    positions: Ints  # [rows]
    pages: Ints  # [rows] page that holds the row's position
    offsets: Ints  # [rows] slot inside that page
    decode: tuple[Span, ...]  # one row each, rows 0 .. len-1, by number of pages
    prompts: tuple[Span, ...]
    sampled: tuple[Span, ...]  # those that want a token, in row order
    sampled_rows: Ints  # [len(sampled)] last row of each
    scored: tuple[Span, ...]  # those that want prompt tokens scored, in row order
    scored_rows: Ints  # [targets of all of them] the row before each target

    @property
    def read_rows(self) -> Ints:
        """``[n]`` rows of which anything is read after the last layer: sampled, then scored."""
        if not self.scored:
            return self.sampled_rows
        return np.concatenate((self.sampled_rows, self.scored_rows))


def filled(rows: Ints) -> Ints:
    """``rows``, the last one repeated up to `ROWS_MIN`: nobody reads the copies."""
    return np.pad(rows, (0, max(ROWS_MIN - len(rows), 0)), mode="edge")


def lay_out(batch: Sequence[SequenceStep], *, page_tokens: int, pages: int) -> Layout:
    """Check and order a batch. ValueError names the step that does not fit its pages."""
    for step in batch:
        _check(step, page_tokens=page_tokens, pages=pages)
    ordered = sorted(batch, key=lambda s: (len(s.tokens) > 1, s.start // page_tokens))
    spans: list[Span] = []
    begin = 0
    for step in ordered:
        spans.append(Span(step=step, begin=begin, count=len(step.tokens)))
        begin += len(step.tokens)
    positions = np.concatenate([np.arange(s.step.start, s.visible) for s in spans])
    slots = [s.step.pages[np.arange(s.step.start, s.visible) // page_tokens] for s in spans]
    sampled = tuple(span for span in spans if span.step.sample is not None)
    scored = tuple(span for span in spans if span.step.scoring is not None)
    return Layout(
        tokens=np.concatenate([s.step.tokens for s in spans]).astype(np.int64, copy=False),
        positions=positions,
        pages=np.concatenate(slots).astype(np.int64),
        offsets=positions % page_tokens,
        decode=tuple(span for span in spans if span.count == 1),
        prompts=tuple(span for span in spans if span.count > 1),
        sampled=sampled,
        sampled_rows=np.array([s.begin + s.count - 1 for s in sampled], dtype=np.int64),
        scored=scored,
        scored_rows=np.concatenate([NO_ROWS, *(_scored_rows(span) for span in scored)]),
    )


def _scored_rows(span: Span) -> Ints:
    scoring = span.step.scoring
    assert scoring is not None
    return span.begin + scoring.row + np.arange(len(scoring.targets))


def _check(step: SequenceStep, *, page_tokens: int, pages: int) -> None:
    count = len(step.tokens)
    needed = -(-(step.start + count) // page_tokens)
    if count < 1 or step.start < 0:
        raise ValueError(f"step {step.key}: {count} tokens at {step.start}")
    if (s := step.scoring) is not None and not 0 <= s.row <= count - len(s.targets) < count:
        raise ValueError(f"step {step.key}: {len(s.targets)} of {count} rows scored from {s.row}")
    if len(step.pages) < needed:
        raise ValueError(f"step {step.key}: {len(step.pages)} pages, needs {needed}")
    used = step.pages[:needed]
    if used.min() < 0 or used.max() >= pages:
        raise ValueError(f"step {step.key}: a page outside 0 .. {pages - 1}")
