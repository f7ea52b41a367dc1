"""Bounded tables, with a time to live, of rooms that have only one leg so far.

An orphan is a Publish whose request has not come (E46); a tombstone remembers a room that ended
before its other leg spoke (E77). Both tables drop their oldest entry when full: a lost entry costs
a time-out of one request, never a wrong page, since the generation is checked everywhere.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class RoomTable(Generic[V]):
    """Room -> value, each for ``ttl_s`` seconds, at most ``entries_max``."""

    def __init__(self, *, ttl_s: float, entries_max: int) -> None:
        self._ttl_s = ttl_s
        self._entries_max = entries_max
        self._entries: OrderedDict[int, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, room: int, value: V, *, now: float) -> list[V]:
        """Remember; returns what had to go: the room's former value and the oldest overflow."""
        gone = [former] if (former := self.take(room)) is not None else []
        self._entries[room] = (now + self._ttl_s, value)
        while len(self._entries) > self._entries_max:
            gone.append(self._entries.popitem(last=False)[1][1])
        return gone

    def get(self, room: int) -> V | None:
        """The value, kept."""
        entry = self._entries.get(room)
        return entry[1] if entry else None

    def take(self, room: int) -> V | None:
        """The value, removed."""
        entry = self._entries.pop(room, None)
        return entry[1] if entry else None

    def drop(self, unwanted: Callable[[V], bool]) -> None:
        """Remove all values of a kind."""
        for room in [r for r, (_, value) in self._entries.items() if unwanted(value)]:
            del self._entries[room]

    def expire(self, now: float) -> list[V]:
        """Remove and return what is too old."""
        gone: list[V] = []
        while self._entries:
            room, (until, value) = next(iter(self._entries.items()))
            if until > now:
                break
            del self._entries[room]
            gone.append(value)
        return gone
