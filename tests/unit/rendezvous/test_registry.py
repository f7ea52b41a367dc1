"""Rows are a set; rooms are bounded in number and age."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.errors import BadRequest, RowConflict, Unavailable, UnknownRank
from pdcluster_worker.rendezvous.messages import SHARED_FIELDS
from pdcluster_worker.rendezvous.registry import RoomRanks, RouteTable
from tests.unit.rendezvous.rows import row


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def test_e75_registering_twice_counts_once() -> None:
    """Trigger: a rank registers twice before the last one has come.
    Others: counted calls, said ready too early, and answered 404.
    Here: rows are a set by rank; ready means that all are there.
    Bound: none needed.
    """
    table = RouteTable()
    for _ in range(3):
        table.put(row(attn_tp_size=2, attn_tp_rank=0))
    with pytest.raises(Unavailable):
        table.topology()
    table.put(row(attn_tp_size=2, attn_tp_rank=1, instance="i-2"))
    assert [r.instance for r in table.topology().rows] == ["i-1", "i-2"]


def test_a_restarted_rank_replaces_its_row() -> None:
    table = RouteTable()
    table.put(row())
    table.put(row(instance="i-2", page_size=32, peer_port=9))
    topology = table.topology()
    assert topology.page_size == 32
    assert topology.contact().instance == "i-2"
    assert topology.contact().port == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attn_tp_size", 3),
        ("attn_cp_size", 2),
        ("attn_dp_size", 2),
        ("pp_size", 2),
        ("system_dp_size", 2),
        ("page_size", 32),
        ("kv_cache_dtype", "bfloat16"),
        ("fingerprint", "g"),
        ("load_balance_method", "round_robin"),
        ("prefill_http_port", 1),
    ],
)
def test_e68_a_registrant_that_differs_is_refused_by_field(name: str, value: object) -> None:
    assert name in SHARED_FIELDS
    table = RouteTable()
    table.put(row(attn_tp_size=2, attn_tp_rank=0))
    with pytest.raises(RowConflict, match=name):
        table.put(row(**{"attn_tp_size": 2, "attn_tp_rank": 1, name: value}))


@pytest.mark.parametrize(
    "name", ["attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "pp_rank", "system_dp_rank"]
)
def test_ranks_are_below_their_size(name: str) -> None:
    with pytest.raises(BadRequest) as caught:
        RouteTable().put(row(**{name: 1}))
    assert caught.value.field == name


def test_too_many_ranks() -> None:
    with pytest.raises(BadRequest):
        RouteTable().put(row(attn_tp_size=4096, pp_size=2))


def test_one_row() -> None:
    table = RouteTable()
    with pytest.raises(Unavailable):
        table.get((0, 0, 0, 0))
    table.put(row())
    assert table.get((0, 0, 0, 0)) == row()
    with pytest.raises(UnknownRank):
        table.get((0, 0, 1, 0))


@given(st.permutations([(dp, tp) for dp in range(2) for tp in range(3)]))
def test_ready_with_the_last_row_in_any_order(order: list[tuple[int, int]]) -> None:
    table = RouteTable()
    for count, (dp, tp) in enumerate(order):
        with pytest.raises(Unavailable):
            table.topology()
        table.put(
            row(
                system_dp_size=2,
                system_dp_rank=dp,
                attn_tp_size=3,
                attn_tp_rank=tp,
                instance=f"i-{dp}-{tp}",
            )
        )
        assert count < 6
    topology = table.topology()
    assert topology.dp_size == 2
    assert topology.contact(dp_rank=1).instance == "i-1-0"


def test_rooms_expire() -> None:
    clock = FakeClock()
    rooms = RoomRanks(clock, rooms_max=10, ttl_s=120.0)
    rooms.put(1, 0)
    clock.sleep(60)
    rooms.put(2, 1)
    assert rooms.get((1, 2, 3)) == {1: 0, 2: 1}
    clock.sleep(60)
    assert rooms.get((1, 2)) == {2: 1}
    rooms.put(2, 3)
    clock.sleep(119)
    assert rooms.get((2,)) == {2: 3}


def test_rooms_are_bounded() -> None:
    rooms = RoomRanks(FakeClock(), rooms_max=2)
    for room in (1, 2, 3):
        rooms.put(room, 0)
    assert rooms.get((1, 2, 3)) == {2: 0, 3: 0}
