"""Prefill's memory of rooms with one leg: published without a request, or ended without one."""

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.errors import WorkerError
from pdcluster_worker.pipeline.rooms import RoomTable
from pdcluster_worker.pipeline.sending import Orphan
from pdcluster_worker.wire.peer import Abort, Publish


class Legs:
    """Orphans and tombstones, each bounded and with a time to live."""

    def __init__(self, limits: LimitSpec) -> None:
        ttl_s, most = limits.orphan_ttl_s, limits.rooms_tracked_max
        self._orphans: RoomTable[Orphan] = RoomTable(ttl_s=ttl_s, entries_max=most)
        self._refused: RoomTable[WorkerError] = RoomTable(ttl_s=ttl_s, entries_max=most)
        self._aborted: RoomTable[WorkerError] = RoomTable(ttl_s=ttl_s, entries_max=most)

    def keep(self, sender: str, publish: Publish, *, now: float) -> list[Orphan]:
        """Remember a Publish until its request comes; returns those that had to go."""
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

    def lost(self, instance: str) -> None:
        """The decode is gone: its orphans will not be claimed."""
        self._orphans.drop(lambda orphan: orphan[0] == instance)

    def expire(self, now: float) -> list[Orphan]:
        """Orphans whose request never came."""
        self._refused.expire(now)
        self._aborted.expire(now)
        return self._orphans.expire(now)
