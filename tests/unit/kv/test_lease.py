"""A lease gives everything back exactly once."""

import pytest

from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.lease import Lease, LeaseState, Pools
from pdcluster_worker.kv.rows import RowAllocator


@pytest.fixture
def pools() -> Pools:
    """8 pages and 2 usable rows."""
    return Pools(PageAllocator(8), RowAllocator(3))


def lease(pools: Pools, pages: int = 3) -> Lease:
    """One that must exist."""
    made = pools.lease(pages=pages, row=True)
    assert made is not None
    return made


def initial(pools: Pools) -> bool:
    """Everything is free."""
    pools.check()
    return pools.pages.count().free == 8 and pools.rows.count().free == 2


def test_all_or_nothing(pools: Pools) -> None:
    assert pools.lease(pages=9, row=True) is None
    assert initial(pools)
    held = [lease(pools, 1), lease(pools, 1)]
    assert pools.lease(pages=1, row=True) is None, "no row is left"
    assert pools.pages.count().held == 2
    for each in held:
        each.release()
    assert initial(pools)


def test_released_once(pools: Pools) -> None:
    made = lease(pools)
    made.release()
    assert initial(pools)
    with pytest.raises(RuntimeError, match="lease is released"):
        made.release()
    with pytest.raises(RuntimeError, match="lease is released"):
        made.isolate()


def test_isolated_until_proven(pools: Pools) -> None:
    made = lease(pools)
    made.isolate()
    assert pools.pages.count().quarantined == 3
    assert pools.rows.count().quarantined == 1
    with pytest.raises(RuntimeError, match="lease is isolated"):
        made.release()
    made.readmit()
    assert made.state is LeaseState.RELEASED
    assert initial(pools)


def test_grows_at_the_end_or_not_at_all(pools: Pools) -> None:
    made = lease(pools, 6)
    first = made.pages.tolist()
    assert not made.grow(3)
    assert made.grow(2)
    assert made.pages.tolist()[:6] == first
    made.drop_row()
    assert pools.rows.count().free == 2
    made.release()
    assert initial(pools)


@pytest.mark.parametrize("pages", [0, 3])
def test_only_an_isolated_lease_is_readmitted(pools: Pools, pages: int) -> None:
    made = lease(pools, pages)
    with pytest.raises(RuntimeError, match="lease is open"):
        made.readmit()
    made.isolate()
    made.readmit()
    with pytest.raises(RuntimeError, match="lease is released"):
        made.readmit()
    assert initial(pools)
