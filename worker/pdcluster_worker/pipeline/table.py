"""Life-cycle tables: ``(stage, event) -> (next stage, actions)``, and what applies them.

A table is data: tests walk it (no row unreachable, no pair that can happen missing), docs print
it. ``None`` as a stage means not yet, or no longer, a live request.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pdcluster_api.states import Stage

E = TypeVar("E", bound=StrEnum)
A = TypeVar("A", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Row(Generic[A]):
    """Where to go and what to do on the way, in order."""

    target: Stage | None
    actions: tuple[A, ...] = ()


Table = Mapping[tuple[Stage | None, E], Row[A]]


class Walker(Generic[E, A]):
    """Applies one table; counts how often each row was taken."""

    def __init__(self, table: Table[E, A]) -> None:
        self._table = table
        self.taken: Counter[tuple[Stage | None, E]] = Counter()

    def step(self, stage: Stage | None, event: E) -> Row[A] | None:
        """The row for this pair, or None where the event means nothing in this stage."""
        row = self._table.get((stage, event))
        if row is not None:
            self.taken[(stage, event)] += 1
        return row
