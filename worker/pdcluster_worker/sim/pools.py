"""Allocators that remember every tenancy of a page or row, for the checks.

A tenancy number grows by one when its page is handed out and by one when it is free again: odd
means taken, and an unchanged number means that nobody else has had the page in between.
"""

import numpy as np
import numpy.typing as npt

from pdcluster_worker.core.ports import PageIds
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.rows import RowAllocator

Tenancy = npt.NDArray[np.int64]


class WatchedPages(PageAllocator):
    """`PageAllocator` with ``tenancy``, int64, one number per page."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.tenancy = np.zeros(total, np.int64)

    def allocate(self, pages: int) -> PageIds | None:
        ids = super().allocate(pages)
        if ids is not None:
            self.tenancy[ids] += 1
        return ids

    def release(self, pages: PageIds) -> None:
        super().release(pages)
        self.tenancy[pages] += 1

    def readmit(self, pages: PageIds) -> None:
        super().readmit(pages)
        self.tenancy[pages] += 1


class WatchedRows(RowAllocator):
    """`RowAllocator` with ``tenancy``, int64, one number per row."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.tenancy = np.zeros(rows, np.int64)

    def allocate(self) -> int | None:
        row = super().allocate()
        if row is not None:
            self.tenancy[row] += 1
        return row

    def release(self, row: int) -> None:
        super().release(row)
        self.tenancy[row] += 1

    def readmit(self, row: int) -> None:
        super().readmit(row)
        self.tenancy[row] += 1
