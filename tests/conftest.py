"""For all tests: the cheap ones run first, so that a plain mistake shows early."""

import pytest

DEAR = ("real", "model", "full")  # markers, from cheap to dear


def cost(item: pytest.Item) -> int:
    """0 for a plain test, more for each dearer marker."""
    return max(
        (DEAR.index(mark.name) + 1 for mark in item.iter_markers() if mark.name in DEAR), default=0
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by cost; tests of equal cost stay as collected."""
    items.sort(key=cost)
