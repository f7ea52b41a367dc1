"""What a bootstrap server remembers: the rows of its worker's ranks, and which rank took a room.

Ready means that every (dp, cp, tp, pp) place has a row. It is a set, so a rank that registers twice
counts once (E75).
"""

from collections import OrderedDict

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import BadRequest, RowConflict, Unavailable, UnknownRank
from pdcluster_worker.rendezvous.messages import (
    RANKS_MAX,
    SHARED_FIELDS,
    Row,
    RowKey,
    Topology,
)


class RouteTable:
    """Rows of one prefill worker. A single event loop uses it; nothing here blocks."""

    def __init__(self) -> None:
        self._rows: dict[RowKey, Row] = {}

    def put(self, row: Row) -> None:
        """Add a row, or replace the one of the same key (a restarted rank)."""
        _check_ranks(row)
        others = (other for key, other in self._rows.items() if key != row.key)
        if (other := next(others, None)) is not None:  # the others agree among themselves
            for name in SHARED_FIELDS:
                ours, theirs = getattr(other, name), getattr(row, name)
                if ours != theirs:
                    raise RowConflict(
                        f"{name}: {theirs!r} differs from {ours!r}, registered by rank {other.key}"
                    )
        self._rows[row.key] = row

    def get(self, key: RowKey) -> Row:
        """One row. Unavailable until the worker is complete, UnknownRank for no such rank."""
        self._require_complete()
        row = self._rows.get(key)
        if row is None:
            raise UnknownRank(f"no rank (dp, cp, tp, pp) = {key}")
        return row

    def topology(self) -> Topology:
        """The whole worker; Unavailable until it is complete."""
        one = self._require_complete()
        return Topology(
            attn_tp_size=one.attn_tp_size,
            attn_cp_size=one.attn_cp_size,
            dp_size=one.dp_size,
            pp_size=one.pp_size,
            page_size=one.page_size,
            kv_cache_dtype=one.kv_cache_dtype,
            follow_bootstrap_room=one.load_balance_method == "follow_bootstrap_room",
            fingerprint=one.fingerprint,
            prefill_http_port=one.prefill_http_port,
            rows=tuple(self._rows[key] for key in sorted(self._rows)),
        )

    def _require_complete(self) -> Row:
        one = next(iter(self._rows.values()), None)
        if one is None:
            raise Unavailable("no rank has registered yet")
        # All rows have the same sizes and ranks below them: as many rows as ranks are all of them.
        if len(self._rows) < one.ranks:
            raise Unavailable(f"{len(self._rows)} of {one.ranks} ranks have registered")
        return one


class RoomRanks:
    """Which data-parallel rank took a room, for ``ttl_s`` and at most ``rooms_max`` rooms."""

    def __init__(self, clock: Clock, *, rooms_max: int, ttl_s: float = 120.0) -> None:
        self._clock = clock
        self._rooms_max = rooms_max
        self._ttl_s = ttl_s
        self._rooms: OrderedDict[int, tuple[float, int]] = OrderedDict()  # oldest first

    def put(self, room: int, dp_rank: int) -> None:
        """Remember; the oldest room makes place when full."""
        self._expire()
        self._rooms.pop(room, None)
        if len(self._rooms) >= self._rooms_max:
            self._rooms.popitem(last=False)
        self._rooms[room] = (self._clock.now() + self._ttl_s, dp_rank)

    def get(self, rooms: tuple[int, ...]) -> dict[int, int]:
        """Ranks of those rooms that are known; the others are absent."""
        self._expire()
        return {room: self._rooms[room][1] for room in rooms if room in self._rooms}

    def _expire(self) -> None:
        now = self._clock.now()
        while self._rooms and next(iter(self._rooms.values()))[0] <= now:
            self._rooms.popitem(last=False)


def _check_ranks(row: Row) -> None:
    for name, rank, size in (
        ("attn_tp_rank", row.attn_tp_rank, row.attn_tp_size),
        ("attn_cp_rank", row.attn_cp_rank, row.attn_cp_size),
        ("attn_dp_rank", row.attn_dp_rank, row.attn_dp_size),
        ("pp_rank", row.pp_rank, row.pp_size),
        ("system_dp_rank", row.system_dp_rank, row.system_dp_size),
    ):
        if rank >= size:
            raise BadRequest(f"{name}: {rank} is not below its size {size}", field=name)
    if row.ranks > RANKS_MAX:
        raise BadRequest(f"{row.ranks} ranks, at most {RANKS_MAX}", field="attn_tp_size")
