"""How a batch is laid out and split."""

from dataclasses import replace

import numpy as np
import pytest

from pdcluster_worker.core.ports import Scoring, SequenceStep
from pdcluster_worker.engine.batch import lay_out
from pdcluster_worker.engine.paged_attention import PADDED_ROWS_SPLIT, _split
from tests.unit.engine.rig import GREEDY


def step(key: int, count: int, start: int, pages: list[int], *, ask: bool = True) -> SequenceStep:
    return SequenceStep(
        key=key,
        tokens=np.arange(count) + 100 * key,
        start=start,
        pages=np.array(pages, dtype=np.int32),
        sample=GREEDY if ask else None,
    )


def test_decoding_sequences_come_first_by_length_then_prompts() -> None:
    batch = [
        step(1, 3, 2, [7, 5]),
        step(2, 1, 9, [1, 2, 3]),
        step(3, 2, 0, [8], ask=False),
        step(4, 1, 0, [4]),
    ]
    layout = lay_out(batch, page_tokens=4, pages=9)
    assert [s.step.key for s in layout.decode] == [4, 2]
    assert [s.step.key for s in layout.prompts] == [1, 3]
    assert layout.tokens.tolist() == [400, 200, 100, 101, 102, 300, 301]
    assert layout.positions.tolist() == [0, 9, 2, 3, 4, 0, 1]
    assert layout.pages.tolist() == [4, 3, 7, 7, 5, 8, 8]
    assert layout.offsets.tolist() == [0, 1, 2, 3, 0, 0, 1]
    assert [s.step.key for s in layout.sampled] == [4, 2, 1]
    assert layout.sampled_rows.tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (step(7, 5, 0, [1]), "step 7: 1 pages, needs 2"),
        (step(7, 1, 0, [9]), "outside 0 .. 8"),
        (step(7, 1, 0, [-1]), "outside 0 .. 8"),
        (step(7, 1, -1, [1]), "1 tokens at -1"),
        (step(7, 0, 0, [1]), "0 tokens at 0"),
    ],
)
def test_a_step_that_does_not_fit_is_named(bad: SequenceStep, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lay_out([step(1, 1, 0, [0]), bad], page_tokens=4, pages=9)


@pytest.mark.parametrize(("row", "targets"), [(-1, 2), (0, 4), (2, 2), (0, 0), (3, 0)])
def test_scoring_beyond_the_step_is_named(row: int, targets: int) -> None:
    asked = Scoring(row=row, targets=np.arange(targets))
    with pytest.raises(ValueError, match=rf"step 7: {targets} of 3 rows scored from {row}"):
        lay_out([replace(step(7, 3, 0, [1]), scoring=asked)], page_tokens=4, pages=9)


def test_rows_that_are_read_are_the_sampled_then_the_scored() -> None:
    asked = Scoring(row=1, targets=np.array([9, 9]))
    batch = [
        replace(step(1, 3, 0, [7]), scoring=asked),
        step(2, 1, 9, [1, 2, 3]),
        replace(step(3, 4, 0, [8], ask=False), scoring=asked),
    ]
    layout = lay_out(batch, page_tokens=4, pages=9)
    assert [s.step.key for s in layout.scored] == [1, 3]
    assert layout.scored_rows.tolist() == [2, 3, 5, 6]
    assert layout.read_rows.tolist() == [0, 3, 2, 3, 5, 6]


def test_pages_beyond_those_needed_are_not_looked_at() -> None:
    lay_out([step(1, 1, 0, [0, -7])], page_tokens=4, pages=1)


def test_a_group_splits_when_padding_would_cost_more_than_a_call() -> None:
    tokens = 16
    pages = list(range(1024))
    batch = [step(k, 1, start, pages) for k, start in enumerate([10] * 30 + [9000] * 3)]
    spans = lay_out(batch, page_tokens=tokens, pages=1024).decode
    groups = _split(spans, tokens)
    assert [len(g) for g in groups] == [30, 3]
    near = lay_out(batch[:30], page_tokens=tokens, pages=1024).decode
    assert [len(g) for g in _split(near, tokens)] == [30]
    assert _split((), tokens) == []
    assert PADDED_ROWS_SPLIT < 30 * 9000
