"""Chunks, finishes, rooms with one leg, pauses: the small decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.pipeline.batching import split_chunk
from pdcluster_worker.pipeline.finish import finish_of
from pdcluster_worker.pipeline.request import Request, from_submit
from pdcluster_worker.pipeline.rooms import RoomTable
from pdcluster_worker.roles.pacing import (
    FOLLOW_S,
    IDLE_S,
    NAP_S,
    NAP_WINDOW_S,
    STEP_S,
    Situation,
    pause_s,
)
from pdcluster_worker.wire.local import Sampling, Submit


@given(st.lists(st.integers(1, 100), max_size=8), st.integers(1, 120))
def test_chunks_are_first_come_first_served(remaining: list[int], budget: int) -> None:
    shares = split_chunk(remaining, budget=budget)
    assert sum(shares) == min(budget, sum(remaining))
    assert all(share <= left for share, left in zip(shares, remaining, strict=True))
    cut = [i for i, (s, r) in enumerate(zip(shares, remaining, strict=True)) if s < r]
    assert all(share == 0 for share in shares[cut[0] + 1 :]) if cut else True


def request(output: list[int], **sampling: object) -> Request:
    """A running request whose model ends with token 0."""
    message = Submit(
        rid="r",
        input_ids=b"\x01\x00\x00\x00",
        sampling=Sampling(**sampling),  # type: ignore[arg-type]
    )
    made = from_submit(message, key=1, capacity=100, eos_token_ids=(0,))
    made.output.extend(output)
    return made


@pytest.mark.parametrize(
    ("output", "sampling", "expected"),
    [
        ([5], {}, (None, None)),
        ([0], {}, ("stop", 0)),  # the handed-over first token may be the last (F48)
        ([0], {"ignore_eos": True}, (None, None)),
        ([0], {"min_new_tokens": 2}, (None, None)),
        ([7, 0], {"min_new_tokens": 2}, ("stop", 0)),
        ([9], {"stop_token_ids": (9,)}, ("stop", 9)),
        ([5], {"max_new_tokens": 1}, ("length", None)),
        ([0], {"max_new_tokens": 1}, ("stop", 0)),
    ],
)
def test_finish(
    output: list[int], sampling: dict[str, object], expected: tuple[str | None, int | None]
) -> None:
    assert finish_of(request(output, **sampling), output[-1]) == expected


def test_an_answer_is_cut_to_the_pool() -> None:
    message = Submit(rid="r", input_ids=b"\x01\x00\x00\x00" * 90, sampling=Sampling())
    assert from_submit(message, key=1, capacity=100, eos_token_ids=()).max_new == 11


def test_eos_is_banned_while_too_few_tokens_are_out() -> None:
    assert request([], min_new_tokens=1).sample_params().banned == (0,)
    assert request([4], min_new_tokens=1).sample_params().banned == ()


def test_room_tables_are_bounded_and_forget() -> None:
    table: RoomTable[str] = RoomTable(ttl_s=10.0, entries_max=2)
    assert table.put(1, "a", now=0.0) == []
    assert table.put(1, "b", now=1.0) == ["a"], "the former value of the room"
    assert table.put(2, "c", now=2.0) == []
    assert table.put(3, "d", now=3.0) == ["b"], "the oldest makes room"
    assert table.get(2) == "c"
    assert table.expire(12.0) == ["c"]
    assert table.take(3) == "d"
    assert table.take(3) is None
    assert len(table) == 0


@pytest.mark.parametrize(
    ("situation", "seconds"),
    [
        ({"writing": True, "quiet_s": 0.0}, 0.0),
        ({"awaiting": True, "quiet_s": FOLLOW_S / 2}, 0.0),
        ({"awaiting": True, "quiet_s": FOLLOW_S * 2}, NAP_S),
        ({"awaiting": True, "quiet_s": NAP_WINDOW_S * 2}, STEP_S),
        ({"awaiting": True, "computing": True, "quiet_s": FOLLOW_S * 2}, STEP_S),
        ({"writing": True, "quiet_s": NAP_WINDOW_S * 2}, STEP_S),
        ({"computing": True}, STEP_S),
        ({}, IDLE_S),
    ],
)
def test_pauses(situation: dict[str, object], seconds: float) -> None:
    plain: dict[str, object] = {
        "writing": False, "awaiting": False, "computing": False, "quiet_s": 1.0
    }  # fmt: skip
    assert pause_s(Situation(**{**plain, **situation})) == seconds  # type: ignore[arg-type]
