"""The lease: whatever a request owns hangs on it, and is given back exactly once.

OPEN --release--> RELEASED                    nobody else can touch the memory
OPEN --isolate--> ISOLATED --readmit--> RELEASED    a writer still could; later it is proven not to
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from pdcluster_worker.core.ports import PageIds
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.rows import RowAllocator


class LeaseState(Enum):
    """Of a lease."""

    OPEN = "open"
    ISOLATED = "isolated"
    RELEASED = "released"


@dataclass(slots=True)
class Pools:
    """What leases are cut from."""

    pages: PageAllocator
    rows: RowAllocator

    def lease(self, *, pages: int, row: bool) -> "Lease | None":
        """All that is asked for, or None and nothing taken."""
        row_id = self.rows.allocate() if row else None
        if row and row_id is None:
            return None
        ids = self.pages.allocate(pages)
        if ids is None:
            if row_id is not None:
                self.rows.release(row_id)
            return None
        return Lease(self, ids, row_id)

    def check(self) -> None:
        """Raise RuntimeError if a pool's books do not add up."""
        self.pages.check()
        self.rows.check()


class Lease:
    """Pages and at most one metadata row. Made by `Pools.lease` only."""

    __slots__ = ("_pools", "pages", "row", "state")

    def __init__(self, pools: Pools, pages: PageIds, row: int | None) -> None:
        self._pools = pools
        self.pages = pages
        self.row = row
        self.state = LeaseState.OPEN

    def grow(self, pages: int) -> bool:
        """Add pages at the end. False, and nothing taken, when fewer are free."""
        self._expect(LeaseState.OPEN)
        more = self._pools.pages.allocate(pages)
        if more is None:
            return False
        self.pages = np.concatenate((self.pages, more))
        return True

    def drop_row(self) -> None:
        """Give the row back early: it has been read."""
        self._expect(LeaseState.OPEN)
        if self.row is not None:
            self._pools.rows.release(self.row)
            self.row = None

    def release(self) -> None:
        """Everything becomes free. Raises RuntimeError unless the lease is open."""
        self._expect(LeaseState.OPEN)
        self._pools.pages.release(self.pages)
        if self.row is not None:
            self._pools.rows.release(self.row)
        self.state = LeaseState.RELEASED

    def isolate(self) -> None:
        """Everything is quarantined until `readmit`."""
        self._expect(LeaseState.OPEN)
        self._pools.pages.quarantine(self.pages)
        if self.row is not None:
            self._pools.rows.quarantine(self.row)
        self.state = LeaseState.ISOLATED

    def readmit(self) -> None:
        """The proof has come: everything becomes free."""
        self._expect(LeaseState.ISOLATED)
        self._pools.pages.readmit(self.pages)
        if self.row is not None:
            self._pools.rows.readmit(self.row)
        self.state = LeaseState.RELEASED

    def _expect(self, state: LeaseState) -> None:
        if self.state is not state:
            raise RuntimeError(f"lease is {self.state.value}, expected {state.value}")
