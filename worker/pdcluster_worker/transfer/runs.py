"""Runs: neighbours on both sides travel as one descriptor.

    source 4 5 6 9      target 0 1 2 3      runs (4 -> 0, 3 items), (9 -> 3, 1 item)

The cost of a write between two processes of one host is about 1 us per descriptor plus the bytes,
so the number of runs is what the page allocator should keep low.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.ports import PageIds


class Runs(NamedTuple):
    """Run ``r`` is ``length[r]`` items from ``source[r]`` on, to ``target[r]`` on; each [runs]."""

    source: PageIds
    target: PageIds
    length: NDArray[np.int64]


def merge_runs(source: PageIds, target: PageIds) -> Runs:
    """The fewest runs that cover the pairs in their order. Equal lengths >= 1 are the caller's."""
    starts = np.concatenate((np.zeros(1, dtype=np.int64), _breaks(source, target)))
    length = np.diff(starts, append=source.size)
    return Runs(source[starts], target[starts], length)


def count_runs(source: PageIds, target: PageIds) -> int:
    """How many descriptors the pairs need after merging."""
    return int(_breaks(source, target).size) + 1


def _breaks(source: PageIds, target: PageIds) -> NDArray[np.int64]:
    """Positions at which a new run begins, the first one excepted."""
    apart = (source[1:] - source[:-1] != 1) | (target[1:] - target[:-1] != 1)
    return np.flatnonzero(apart) + 1
