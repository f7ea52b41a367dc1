"""The page allocator. Torch-free; prefers long ascending runs, since a run is one descriptor.

Free pages are kept as maximal runs, bucketed by the bit length of their size: the first run of a
large enough bucket serves a request in O(1), freeing merges with both neighbours in O(1).
"""

import numpy as np

from pdcluster_worker.core.ports import PageIds, PoolCount
from pdcluster_worker.kv.bookkeeping import Bookkeeping, Place

_FIT_TRIES = 8  # runs of the request's own bucket looked at before a larger bucket is split


class _Runs:
    """Maximal runs of free pages."""

    def __init__(self, total: int) -> None:
        self._length: dict[int, int] = {}  # first page -> pages
        self._first: dict[int, int] = {}  # page after the last -> first page
        self._buckets: list[dict[int, None]] = [{} for _ in range(total.bit_length() + 1)]
        self._insert(0, total)

    def _insert(self, first: int, length: int) -> None:
        self._length[first] = length
        self._first[first + length] = first
        self._buckets[length.bit_length()][first] = None

    def _remove(self, first: int) -> int:
        length = self._length.pop(first)
        del self._first[first + length]
        del self._buckets[length.bit_length()][first]
        return length

    def take(self, wanted: int) -> list[tuple[int, int]]:
        """Runs of ``wanted`` pages in all; the caller has checked that they exist."""
        taken: list[tuple[int, int]] = []
        while wanted:
            first = self._find(wanted)
            length = self._remove(first)
            used = min(length, wanted)
            if used < length:
                self._insert(first + used, length - used)
            taken.append((first, used))
            wanted -= used
        return taken

    def _find(self, wanted: int) -> int:
        own = self._buckets[wanted.bit_length()] if wanted.bit_length() < len(self._buckets) else {}
        for first, _ in zip(own, range(_FIT_TRIES), strict=False):
            if self._length[first] >= wanted:
                return first
        for bucket in self._buckets[wanted.bit_length() + 1 :]:
            if bucket:
                return next(iter(bucket))
        for bucket in reversed(self._buckets[: wanted.bit_length() + 1]):
            if bucket:
                return max(bucket, key=self._length.__getitem__)
        raise RuntimeError("free runs disagree with the free count")

    def give(self, first: int, length: int) -> None:
        before = self._first.get(first)
        if before is not None:
            length += self._remove(before)
            first = before
        if first + length in self._length:
            length += self._remove(first + length)
        self._insert(first, length)

    def pages(self) -> int:
        return sum(self._length.values())


def _runs_of(pages: PageIds) -> list[tuple[int, int]]:
    ordered = np.sort(pages)
    cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
    starts = np.concatenate(([0], cuts))
    ends = np.concatenate((cuts, [len(ordered)]))
    return [(int(ordered[s]), int(e - s)) for s, e in zip(starts, ends, strict=True)]


class PageAllocator:
    """Pages 0 .. total-1."""

    def __init__(self, total: int) -> None:
        self._book = Bookkeeping(total)
        self._runs = _Runs(total)

    def count(self) -> PoolCount:
        """Pages by place."""
        return self._book.count()

    def allocate(self, pages: int) -> PageIds | None:
        """``pages`` page ids, all or nothing. None when fewer are free."""
        if pages < 0:
            raise ValueError(f"cannot allocate {pages} pages")
        if pages > self._book.count().free:
            return None
        runs = self._runs.take(pages)
        if not runs:
            return np.empty(0, np.int32)
        ids = np.concatenate([np.arange(f, f + n, dtype=np.int32) for f, n in runs])
        self._book.move(ids.tolist(), source=Place.FREE, target=Place.HELD)
        return ids

    def release(self, pages: PageIds) -> None:
        """Held pages become free. Raises RuntimeError on a double release."""
        self._free(pages, Place.HELD)

    def quarantine(self, pages: PageIds) -> None:
        """Held pages may still be written by somebody: nobody gets them."""
        self._book.move(pages.tolist(), source=Place.HELD, target=Place.QUARANTINED)

    def readmit(self, pages: PageIds) -> None:
        """Quarantined pages are proven quiet: they become free."""
        self._free(pages, Place.QUARANTINED)

    def _free(self, pages: PageIds, source: Place) -> None:
        if len(pages) == 0:
            return
        self._book.move(pages.tolist(), source=source, target=Place.FREE)
        for first, length in _runs_of(pages):
            self._runs.give(first, length)

    def check(self) -> None:
        """Raise RuntimeError if the books do not add up."""
        self._book.check()
        if self._runs.pages() != self._book.count().free:
            raise RuntimeError("free runs disagree with the free count")
