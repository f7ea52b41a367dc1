"""Where each unit of a pool is: free, held or quarantined. Nothing is lost, nothing freed twice.

    free --take--> held --give--> free
                   held --isolate--> quarantined --readmit--> free

A unit is quarantined while a writer that could still touch it is not proven quiescent.
"""

from collections.abc import Iterable
from enum import IntEnum

from pdcluster_worker.core.ports import PoolCount


class Place(IntEnum):
    """Of one unit."""

    FREE = 0
    HELD = 1
    QUARANTINED = 2


class Bookkeeping:
    """One byte per unit, and counts. Every transition is checked: a wrong one raises at birth."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a pool needs at least one unit, got {total}")
        self.total = total
        self._place = bytearray(total)
        self._counts = [total, 0, 0]

    def move(self, units: Iterable[int], *, source: Place, target: Place) -> None:
        """Move units. Raises RuntimeError, before changing anything, if one is elsewhere."""
        listed = list(units)
        if listed and not (min(listed) >= 0 and max(listed) < self.total):
            raise RuntimeError(f"a unit of {listed} is outside of the pool of {self.total}")
        if len(set(listed)) != len(listed):
            raise RuntimeError(f"a unit is listed twice in {listed}")
        for unit in listed:
            if self._place[unit] != source:
                place = Place(self._place[unit]).name
                raise RuntimeError(f"unit {unit} is {place}, expected {source.name}")
        for unit in listed:
            self._place[unit] = target
        self._counts[source] -= len(listed)
        self._counts[target] += len(listed)

    def place(self, unit: int) -> Place:
        """Where a unit is now."""
        return Place(self._place[unit])

    def count(self) -> PoolCount:
        """Units by place."""
        free, held, quarantined = self._counts
        return PoolCount(total=self.total, free=free, held=held, quarantined=quarantined)

    def check(self) -> None:
        """Recount everything. Raises RuntimeError on a difference."""
        counted = [self._place.count(place) for place in Place]
        if counted != self._counts or sum(counted) != self.total:
            raise RuntimeError(f"pool counts {self._counts} differ from recount {counted}")
