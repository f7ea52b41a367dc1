"""The page and row allocators against a plain set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.rows import WARM_ROW, RowAllocator

TOTAL = 24


class Pages(RuleBasedStateMachine):
    """Random calls; a model that knows where every page is."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PageAllocator(TOTAL)
        self.held: list[np.ndarray] = []
        self.quarantined: list[np.ndarray] = []

    @rule(count=st.integers(0, TOTAL + 2))
    def allocate(self, count: int) -> None:
        free = self.pool.count().free
        pages = self.pool.allocate(count)
        if count > free:
            assert pages is None
            return
        assert pages is not None
        assert len(set(pages.tolist())) == count
        self.held.append(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.quarantine(pages)
        self.quarantined.append(pages)

    @precondition(lambda self: self.quarantined)
    @rule()
    def readmit(self) -> None:
        self.pool.readmit(self.quarantined.pop())

    @invariant()
    def nothing_is_lost_or_owned_twice(self) -> None:
        self.pool.check()
        count = self.pool.count()
        owned = [page for pages in (*self.held, *self.quarantined) for page in pages.tolist()]
        assert len(owned) == len(set(owned))
        assert count.held == sum(map(len, self.held))
        assert count.quarantined == sum(map(len, self.quarantined))
        assert count.free == TOTAL - len(owned)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_a_fresh_pool_gives_one_ascending_run(sizes: list[int]) -> None:
    pool = PageAllocator(64)
    for size in sizes:
        pages = pool.allocate(size)
        assert pages is not None
        assert (np.diff(pages) == 1).all()


def test_freed_neighbours_become_one_run_again() -> None:
    pool = PageAllocator(12)
    parts = [pool.allocate(3) for _ in range(4)]
    for index in (1, 3, 0, 2):
        part = parts[index]
        assert part is not None
        pool.release(part)
    whole = pool.allocate(12)
    assert whole is not None
    assert whole.tolist() == list(range(12))


def test_double_release_raises_and_changes_nothing() -> None:
    pool = PageAllocator(8)
    pages = pool.allocate(4)
    assert pages is not None
    pool.release(pages)
    before = pool.count()
    with pytest.raises(RuntimeError, match="expected HELD"):
        pool.release(pages)
    assert pool.count() == before
    pool.check()


def test_quarantined_pages_are_given_to_nobody() -> None:
    pool = PageAllocator(4)
    pages = pool.allocate(3)
    assert pages is not None
    pool.quarantine(pages)
    assert pool.allocate(2) is None
    pool.readmit(pages)
    assert pool.allocate(4) is not None


def test_rows_rest_before_they_are_used_again() -> None:
    rows = RowAllocator(4)
    first, second = rows.allocate(), rows.allocate()
    assert (first, second) == (1, 2)
    assert first is not None
    rows.release(first)
    assert [rows.allocate(), rows.allocate(), rows.allocate()] == [3, 1, None]


def test_the_warm_up_row_is_never_handed_out() -> None:
    rows = RowAllocator(5)
    assert WARM_ROW not in [rows.allocate() for _ in range(4)]
    assert rows.allocate() is None
