"""Bookkeeping: every transition is checked before anything changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.bookkeeping import Bookkeeping, Place
from pdcluster_worker.kv.rows import RowAllocator

PLACES = st.sampled_from(list(Place))


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=6), PLACES, PLACES), max_size=12))
def test_a_refused_move_changes_nothing(moves: list[tuple[list[int], Place, Place]]) -> None:
    book = Bookkeeping(6)
    model = [Place.FREE] * 6
    for units, source, target in moves:
        legal = len(set(units)) == len(units) and all(model[u] is source for u in units)
        if legal:
            book.move(units, source=source, target=target)
            for unit in units:
                model[unit] = target
        else:
            with pytest.raises(RuntimeError):
                book.move(units, source=source, target=target)
        assert [book.place(unit) for unit in range(6)] == model
        count = book.count()
        assert (count.free, count.held, count.quarantined) == tuple(map(model.count, Place))
        book.check()


def test_a_pool_has_units() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Bookkeeping(0)


def test_check_finds_a_byte_that_was_changed_behind_its_back() -> None:
    book = Bookkeeping(3)
    book._place[1] = Place.HELD
    with pytest.raises(RuntimeError, match="differ from recount"):
        book.check()


def test_check_finds_a_free_run_that_was_lost() -> None:
    pool = PageAllocator(8)
    pool._runs._remove(0)
    with pytest.raises(RuntimeError, match="free runs"):
        pool.check()


def test_check_finds_a_free_row_that_was_lost() -> None:
    rows = RowAllocator(4)
    rows._free.pop()
    with pytest.raises(RuntimeError, match="free rows"):
        rows.check()


def test_a_list_with_one_foreign_page_is_refused_as_a_whole() -> None:
    pool = PageAllocator(8)
    mine = pool.allocate(4)
    assert mine is not None
    foreign = np.append(mine, np.int32(7))
    for release in (pool.release, pool.quarantine, pool.readmit):
        before = pool.count()
        with pytest.raises(RuntimeError):
            release(foreign)
        assert pool.count() == before
        pool.check()
    pool.release(mine)


@pytest.mark.parametrize("move", ["release", "quarantine", "readmit"])
def test_a_free_row_is_refused(move: str) -> None:
    rows = RowAllocator(4)
    with pytest.raises(RuntimeError, match="is FREE"):
        getattr(rows, move)(1)
    assert rows.count().free == 3
    rows.check()


def test_a_page_listed_twice_is_refused() -> None:
    pool = PageAllocator(4)
    pages = pool.allocate(2)
    assert pages is not None
    with pytest.raises(RuntimeError, match="twice"):
        pool.release(np.array([pages[0], pages[0]], np.int32))
    assert pool.count().held == 2


def test_a_negative_request_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="-1"):
        PageAllocator(4).allocate(-1)
