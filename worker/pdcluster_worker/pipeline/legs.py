"""Prefill's memory of rooms with one leg: published without a request, or ended without one.

And of what has been concluded: each decode gives every Publish a generation of its own, so one that
has been answered is never acted upon again, however often it is delivered (E17).
"""

from collections import OrderedDict

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.errors import Aborted, BadRequest, PeerRefused, WorkerError, mirrored
from pdcluster_worker.pipeline.rooms import RoomTable
from pdcluster_worker.pipeline.sending import Orphan
from pdcluster_worker.wire.peer import Abort, Publish


class Concluded:
    """Generations that are over, by decode; bounded, and still exact where it forgets.

    The oldest are forgotten in favour of a floor: whatever is not above it counts as concluded. An
    early copy of a live Publish could be older than the floor only after as many others.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._keys: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._floors: dict[str, int] = {}

    def add(self, instance: str, generation: int) -> None:
        """Nothing of this generation will be acted upon any more."""
        self._keys[(instance, generation)] = None
        if len(self._keys) > self._entries_max:
            (owner, oldest), _ = self._keys.popitem(last=False)
            self._floors[owner] = max(oldest, self._floors.get(owner, 0))

    def __contains__(self, key: tuple[str, int]) -> bool:
        """Generation 0 stands for "never published" and is never over."""
        if key[1] == 0:
            return False
        return key in self._keys or key[1] <= self._floors.get(key[0], 0)

    def forget(self, instance: str) -> None:
        """The process is gone: its frames name a receiver that answers nobody."""
        self._floors.pop(instance, None)
        for key in [key for key in self._keys if key[0] == instance]:
            del self._keys[key]


def ended_by_decode(abort: Abort) -> WorkerError:
    """What decode's end of a request is on this leg.

    Asked for, or the client's fault: the same here, for a router must not try it again.
    """
    error = mirrored(abort.kind, f"decode ended the request: {abort.message}")
    return error if isinstance(error, Aborted | BadRequest) else PeerRefused(str(error))


class Legs:
    """Orphans, tombstones and what is concluded, each bounded."""

    def __init__(self, limits: LimitSpec) -> None:
        ttl_s, most = limits.orphan_ttl_s, limits.rooms_tracked_max
        self._orphans: RoomTable[Orphan] = RoomTable(ttl_s=ttl_s, entries_max=most)
        self._refused: RoomTable[WorkerError] = RoomTable(ttl_s=ttl_s, entries_max=most)
        self._aborted: RoomTable[WorkerError] = RoomTable(ttl_s=ttl_s, entries_max=most)
        self.concluded = Concluded(most)

    def keep(self, sender: str, publish: Publish, *, now: float) -> list[Orphan]:
        """Remember a Publish until its request comes; returns those that had to go.

        A room that another decode has published already stays with the first (E20).
        """
        first = self._orphans.get(publish.room)
        if first is not None and first[0] != sender:
            return [(sender, publish)]
        if first is not None and first[1].generation >= publish.generation:
            return []  # the same once more, or an older one
        return self._orphans.put(publish.room, (sender, publish), now=now)

    def claim(self, room: int) -> Orphan | None:
        """The Publish that waits for this room, removed."""
        return self._orphans.take(room)

    def refuse(self, room: int, error: WorkerError, *, now: float) -> Orphan | None:
        """We ended this room before decode spoke; returns a Publish that already waits."""
        self._refused.put(room, error, now=now)
        return self._orphans.take(room)

    def refused(self, room: int) -> WorkerError | None:
        """Why a Publish for this room is refused at once, if it is."""
        return self._refused.get(room)

    def abort(self, sender: str, abort: Abort, *, error: WorkerError, now: float) -> None:
        """Decode ended this room before its request came here."""
        orphan = self._orphans.get(abort.room)
        if orphan is not None and orphan[0] == sender:
            self._orphans.take(abort.room)
        self._aborted.put(abort.room, error, now=now)

    def reopen(self, room: int) -> WorkerError | None:
        """A request came: forget our own refusal; returns decode's abort, if there was one."""
        self._refused.take(room)
        return self._aborted.take(room)

    def gone(self, instance: str) -> None:
        """The decode's process is gone: its orphans will not be claimed."""
        self.concluded.forget(instance)
        self._orphans.drop(lambda orphan: orphan[0] == instance)

    def sizes(self) -> dict[str, int]:
        """Entries of each table that time empties."""
        return {
            "orphans": len(self._orphans),
            "refused": len(self._refused),
            "aborted": len(self._aborted),
        }

    def expire(self, now: float) -> list[Orphan]:
        """Orphans whose request never came."""
        self._refused.expire(now)
        self._aborted.expire(now)
        return self._orphans.expire(now)
