"""Metadata rows: what is written is read, and neighbours are left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.ports import RowContent
from pdcluster_worker.kv.metadata import ROW_BYTES, SCHEMA, TOP_MAX, Rows

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**31), 2**31 - 1)


def content(**changes: object) -> RowContent:
    """A row with all fields."""
    fields: dict[str, object] = {
        "room": 7, "generation": 3, "token": 11, "prompt_tokens": 5, "cached_tokens": 0,
        "logprob": -0.5, "top": ((11, -0.5), (4, -2.0)),
    }  # fmt: skip
    return RowContent(**{**fields, **changes})  # type: ignore[arg-type]


@given(
    room=st.integers(0, 2**64 - 1),
    generation=st.integers(0, 2**64 - 1),
    token=INTS,
    logprob=st.none() | FLOATS,
    top=st.lists(st.tuples(INTS, FLOATS), max_size=TOP_MAX).map(tuple),
)
def test_round_trip(
    room: int,
    generation: int,
    token: int,
    logprob: float | None,
    top: tuple[tuple[int, float], ...],
) -> None:
    memory = np.zeros((3, ROW_BYTES), np.uint8)
    rows = Rows(memory)
    written = content(room=room, generation=generation, token=token, logprob=logprob, top=top)
    rows.write(1, written)
    assert rows.read(1) == written
    assert not memory[0].any()
    assert not memory[2].any()


def test_a_cleared_row_is_nobodys() -> None:
    rows = Rows(np.zeros((1, ROW_BYTES), np.uint8))
    rows.write(0, content())
    rows.clear(0)
    assert (rows.read(0).room, rows.read(0).generation) == (0, 0)


def test_too_many_top_logprobs_are_refused() -> None:
    rows = Rows(np.zeros((1, ROW_BYTES), np.uint8))
    with pytest.raises(ValueError, match="at most 128"):
        rows.write(0, content(top=((1, 0.0),) * (TOP_MAX + 1)))


def test_garbage_reads_as_something_and_never_raises() -> None:
    memory = np.random.default_rng(1).integers(0, 256, (64, ROW_BYTES)).astype(np.uint8)
    rows = Rows(memory)
    for row in range(64):
        assert len(rows.read(row).top) <= TOP_MAX


def test_the_layout_is_pinned() -> None:
    """A change here must be a change of protocol version: peers compare SCHEMA."""
    assert (ROW_BYTES, SCHEMA) == (1088, "39ab81107d048d7e")
