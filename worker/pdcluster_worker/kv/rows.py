"""The allocator of metadata rows: first in, first out, so that a row rests before it is reused.

Row 0 is never handed out: handshakes write their warm-up into it.
"""

from collections import deque

from pdcluster_worker.core.ports import PoolCount
from pdcluster_worker.kv.bookkeeping import Bookkeeping, Place

WARM_ROW = 0


class RowAllocator:
    """Rows 1 .. rows-1."""

    def __init__(self, rows: int) -> None:
        if rows < 2:
            raise ValueError(f"needs at least 2 rows, row 0 being reserved; got {rows}")
        self._book = Bookkeeping(rows - 1)
        self._free = deque(range(1, rows))

    def count(self) -> PoolCount:
        """Rows by place."""
        return self._book.count()

    def allocate(self) -> int | None:
        """One row, or None when all are taken."""
        if not self._free:
            return None
        row = self._free.popleft()
        self._book.move((row - 1,), source=Place.FREE, target=Place.HELD)
        return row

    def release(self, row: int) -> None:
        """A held row becomes free. Raises RuntimeError on a double release."""
        self._book.move((row - 1,), source=Place.HELD, target=Place.FREE)
        self._free.append(row)

    def quarantine(self, row: int) -> None:
        """A held row may still be written by somebody."""
        self._book.move((row - 1,), source=Place.HELD, target=Place.QUARANTINED)

    def readmit(self, row: int) -> None:
        """A quarantined row is proven quiet."""
        self._book.move((row - 1,), source=Place.QUARANTINED, target=Place.FREE)
        self._free.append(row)

    def check(self) -> None:
        """Raise RuntimeError if the books do not add up."""
        self._book.check()
        if len(self._free) != self._book.count().free:
            raise RuntimeError("free rows disagree with the free count")
