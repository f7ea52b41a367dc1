"""The memory that is registered: aligned, touched, zeroed, and described by its region."""

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

from pdcluster_worker.core.geometry import KVGeometry
from pdcluster_worker.kv.pool import HUGE_PAGE_BYTES, allocate_pool, allocate_rows


def geometry(dtype: str = "float32") -> KVGeometry:
    return KVGeometry(
        layers=4,
        kv_heads=2,
        head_start=0,
        head_count=2,
        head_dim=32,
        page_tokens=16,
        dtype=dtype,
    )


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * mmap.PAGESIZE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_region_describes_the_tensor(dtype: str) -> None:
    shape = geometry(dtype)
    pool = allocate_pool(shape, pages=5, device="cpu")
    assert pool.tensor.shape == (5, 4, 2, 2, 16, 32)
    assert pool.tensor.is_contiguous()
    assert not pool.tensor.any()
    region = pool.region
    assert (region.name, region.kind, region.device) == ("kv", "DRAM", 0)
    assert (region.items, region.item_bytes) == (5, shape.page_bytes)
    assert region.item_bytes * region.items == pool.tensor.nbytes
    for page in range(5):
        assert pool.tensor[page].data_ptr() == region.address + page * region.item_bytes


def test_host_memory_is_aligned_and_touched() -> None:
    before = resident_bytes()
    pool = allocate_pool(geometry(), pages=1024, device="cpu")
    assert pool.region.address % HUGE_PAGE_BYTES == 0
    assert resident_bytes() - before >= 0.9 * pool.tensor.nbytes
    assert allocate_pool(geometry(), pages=1, device="cpu").region.address % mmap.PAGESIZE == 0


def test_closing_frees_with_the_last_view() -> None:
    pool = allocate_pool(geometry(), pages=1024, device="cpu")
    view = pool.tensor[:, 0, 0]
    view += 1.0
    held = resident_bytes()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = pool.tensor
    assert float(view[1023].sum()) == 2 * 16 * 32  # an engine's view stays valid
    del view
    assert resident_bytes() < held - 16_000_000


def test_rows() -> None:
    rows = allocate_rows(10, 300)
    assert rows.array.shape == (10, 300)
    assert rows.array.dtype == np.uint8
    assert not rows.array.any()
    assert rows.region.address == rows.array.ctypes.data
    assert rows.region.address % mmap.PAGESIZE == 0
    assert (rows.region.name, rows.region.items, rows.region.item_bytes) == ("meta", 10, 300)
    rows.close()
    rows.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = rows.array


def test_the_impossible_is_refused() -> None:
    with pytest.raises(ValueError, match="0 pages"):
        allocate_pool(geometry(), pages=0, device="cpu")
    with pytest.raises(ValueError, match="allowed are cpu"):
        allocate_pool(geometry(), pages=1, device="meta")
    for rows, row_bytes in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            allocate_rows(rows, row_bytes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_device_memory() -> None:
    pool = allocate_pool(geometry("bfloat16"), pages=5, device="cuda")
    assert (pool.region.kind, pool.region.device) == ("VRAM", torch.cuda.current_device())
    assert not pool.tensor.any()
