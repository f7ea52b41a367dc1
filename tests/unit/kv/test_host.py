"""Host copies of pages: real bytes, a limit in pages, and nothing kept twice."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcluster_worker.kv.host import HostPages


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@pytest.fixture
def pool() -> torch.Tensor:
    """8 pages, each full of its own number."""
    return torch.arange(8).reshape(8, 1).repeat(1, 3).contiguous()


def test_a_copy_comes_back_into_other_pages(pool: torch.Tensor) -> None:
    host = HostPages(pool, pages_max=4)
    ticket = host.save(pages(5, 2))
    assert ticket is not None
    pool[:] = -1
    host.load(ticket, pages(0, 7, 3))
    assert pool[:, 0].tolist() == [5, -1, -1, -1, -1, -1, -1, 2]


def test_a_copy_is_not_a_view(pool: torch.Tensor) -> None:
    host = HostPages(pool, pages_max=4)
    ticket = host.save(pages(5))
    assert ticket is not None
    pool[5] = 99
    host.load(ticket, pages(0))
    assert pool[0, 0] == 5


def test_what_is_over_the_limit_is_refused_and_takes_nothing(pool: torch.Tensor) -> None:
    host = HostPages(pool, pages_max=3)
    assert host.save(pages(0, 1, 2, 3)) is None
    first = host.save(pages(0, 1))
    assert first is not None
    assert host.save(pages(2, 3)) is None
    assert host.save(pages(2)) is not None


@pytest.mark.parametrize("end", ["load", "drop"])
def test_a_ticket_gives_its_pages_back_once(pool: torch.Tensor, end: str) -> None:
    host = HostPages(pool, pages_max=2)
    ticket = host.save(pages(0, 1))
    assert ticket is not None
    if end == "load":
        host.load(ticket, pages(0, 1))
        with pytest.raises(KeyError):
            host.load(ticket, pages(0, 1))
    host.drop(ticket)
    host.drop(ticket)
    host.drop(12345)
    assert host.save(pages(0, 1)) is not None
    assert host.save(pages(2)) is None


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=20))
def test_the_limit_is_never_exceeded(steps: list[tuple[int, bool]]) -> None:
    host = HostPages(torch.zeros(8, 1), pages_max=6)
    kept: dict[int, int] = {}
    for size, drop in steps:
        if drop and kept:
            ticket = next(iter(kept))
            host.drop(ticket)
            del kept[ticket]
            continue
        fits = sum(kept.values()) + size <= 6
        saved = host.save(np.arange(size, dtype=np.int32))
        assert (saved is not None) is fits
        if saved is not None:
            kept[saved] = size
