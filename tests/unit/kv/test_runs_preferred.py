"""Long runs: a request gets one descriptor whenever one free run is large enough."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.ports import PageIds
from pdcluster_worker.kv.allocator import PageAllocator

TOTAL = 48


def runs(pages: PageIds) -> int:
    """Maximal ascending runs."""
    return 1 + int((np.diff(pages) != 1).sum()) if len(pages) else 0


def longest(taken: set[int]) -> int:
    """Longest free run."""
    best = length = 0
    for page in range(TOTAL):
        length = 0 if page in taken else length + 1
        best = max(best, length)
    return best


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=30), st.integers(1, TOTAL))
def test_one_run_whenever_a_run_of_twice_the_size_is_free(
    steps: list[tuple[int, bool]], wanted: int
) -> None:
    """Between one and two times the size the search is bounded and may split."""
    pool = PageAllocator(TOTAL)
    held: list[PageIds] = []
    for size, release in steps:
        if release and held:
            pool.release(held.pop(size % len(held)))
        elif (pages := pool.allocate(size)) is not None:
            held.append(pages)
    taken = {page for pages in held for page in pages.tolist()}
    room = longest(taken)
    got = pool.allocate(wanted)
    assert (got is None) == (wanted > TOTAL - len(taken))
    if got is not None:
        assert not taken & set(got.tolist())
        if room >= 2 * wanted:
            assert runs(got) == 1


@given(st.permutations(range(8)))
def test_freeing_in_any_order_gives_the_whole_pool_back_as_one_run(order: list[int]) -> None:
    pool = PageAllocator(TOTAL)
    parts = [pool.allocate(TOTAL // 8) for _ in range(8)]
    for index in order:
        part = parts[index]
        assert part is not None
        pool.release(part[::-1].copy())  # the order within does not matter
    whole = pool.allocate(TOTAL)
    assert whole is not None
    assert runs(whole) == 1


def test_a_scattered_pool_still_gives_all_that_is_free() -> None:
    pool = PageAllocator(TOTAL)
    singles = [pool.allocate(1) for _ in range(TOTAL)]
    for single in singles[::2]:
        assert single is not None
        pool.release(single)
    got = pool.allocate(TOTAL // 2)
    assert got is not None
    assert runs(got) == TOTAL // 2
    assert pool.allocate(1) is None
