"""The geometry: plain integers that refuse the impossible, and a hash of what must be shared."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.geometry import DTYPE_BYTES, KVGeometry, geometry_of
from pdcluster_worker.core.ports import ModelShape

GEOMETRY = KVGeometry(
    layers=3, kv_heads=4, head_start=0, head_count=4, head_dim=8, page_tokens=16, dtype="float32",
    model="m",
)  # fmt: skip


def test_a_page_is_the_bytes_of_its_shape() -> None:
    assert GEOMETRY.page_shape == (3, 2, 4, 16, 8)
    assert GEOMETRY.page_bytes == 3 * 2 * 4 * 16 * 8 * 4


@given(tokens=st.integers(0, 500), page=st.integers(1, 64))
def test_pages_hold_all_tokens_and_none_is_empty(tokens: int, page: int) -> None:
    pages = replace(GEOMETRY, page_tokens=page).pages_for(tokens)
    assert pages * page >= tokens
    assert (pages - 1) * page < tokens or pages == 0


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 4}, {"kv_heads": 8}, {"head_dim": 16}, {"page_tokens": 32},
        {"dtype": "bfloat16"}, {"layout": "other"}, {"model": "n"},
    ],
    ids=str,
)  # fmt: skip
def test_e08_e09_every_difference_that_matters_changes_the_fingerprint(
    change: dict[str, object],
) -> None:
    assert replace(GEOMETRY, **change).fingerprint() != GEOMETRY.fingerprint()  # type: ignore[arg-type]


def test_the_head_range_is_negotiated_and_not_part_of_the_fingerprint() -> None:
    half = replace(GEOMETRY, head_start=2, head_count=2)
    assert half.fingerprint() == GEOMETRY.fingerprint()
    assert half.page_bytes * 2 == GEOMETRY.page_bytes


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 0}, {"kv_heads": 0}, {"head_count": 0}, {"head_dim": 0}, {"page_tokens": 0},
        {"head_start": -1}, {"head_start": 1}, {"dtype": "float8"},
    ],
    ids=str,
)  # fmt: skip
def test_the_impossible_is_refused_at_birth(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positive|exceeds|allowed"):
        replace(GEOMETRY, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_one_rank_holds_all_heads_of_the_model(dtype: str) -> None:
    shape = ModelShape(
        layers=2, kv_heads=3, head_dim=8, vocab=10, context_tokens=64, eos_token_ids=(0,),
        dtype=dtype, identity="weights",
    )  # fmt: skip
    made = geometry_of(shape, page_tokens=16)
    assert (made.head_start, made.head_count, made.kv_heads) == (0, 3, 3)
    assert (made.model, made.dtype) == ("weights", dtype)
