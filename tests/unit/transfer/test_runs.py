"""Runs: the pure merging of paired index lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.transfer.runs import count_runs, merge_runs
from tests.unit.transfer.writers import ids

pairs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=60, unique=True
)


@given(pairs)
def test_runs_cover_exactly_the_pairs_in_order(items: list[tuple[int, int]]) -> None:
    source, target = (ids(*side) for side in zip(*items, strict=True))
    runs = merge_runs(source, target)
    unfolded = [
        (s + i, t + i)
        for s, t, n in zip(*(part.tolist() for part in runs), strict=True)
        for i in range(n)
    ]
    assert unfolded == items
    assert count_runs(source, target) == len(runs.length)


@given(pairs)
def test_no_two_neighbouring_runs_could_be_one(items: list[tuple[int, int]]) -> None:
    source, target = (ids(*side) for side in zip(*items, strict=True))
    runs = merge_runs(source, target)
    joins_source = runs.source[:-1] + runs.length[:-1] == runs.source[1:]
    joins_target = runs.target[:-1] + runs.length[:-1] == runs.target[1:]
    assert not (joins_source & joins_target).any()


def test_examples() -> None:
    assert count_runs(ids(4, 5, 6, 9), ids(0, 1, 2, 3)) == 2
    assert count_runs(ids(3, 2, 1), ids(1, 2, 3)) == 3
    assert count_runs(ids(7), ids(0)) == 1
    runs = merge_runs(np.arange(100, dtype=np.int32), np.arange(5, 105, dtype=np.int32))
    assert [part.tolist() for part in runs] == [[0], [5], [100]]
