"""The memory that peers write into: the KV pool and the metadata rows.

Host memory comes page-aligned, in huge pages where the kernel grants them, and is touched once
here: a write into memory never touched before takes 10 to 100 times as long. Every pool outlives
the transport that registered it: close the transport first, then the pool.
"""

import mmap

import numpy as np
import torch
from numpy.typing import NDArray

from pdcluster_worker.core.geometry import KVGeometry
from pdcluster_worker.core.ports import Region

HUGE_PAGE_BYTES = 2 << 20

_TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class KVPool:
    """KV pages of all layers as one tensor, and the region that peers write into.

    ``tensor`` is ``[pages, layers, 2, heads, page_tokens, head_dim]``, zeroed, contiguous.
    """

    def __init__(self, geometry: KVGeometry, *, pages: int, device: torch.device) -> None:
        if pages < 1:
            raise ValueError(f"a pool of {pages} pages: at least 1")
        self.geometry = geometry
        self.pages = pages
        shape = (pages, *geometry.page_shape)
        dtype = _TORCH_DTYPES[geometry.dtype]
        if device.type == "cpu":
            raw = _host_bytes(pages * geometry.page_bytes)
            self._tensor: torch.Tensor | None = torch.from_numpy(raw).view(dtype).view(shape)
        else:
            self._tensor = torch.zeros(shape, dtype=dtype, device=device)
            torch.cuda.synchronize(device)  # peers may write as soon as the region is known
        self.region = Region(
            name="kv",
            address=self._tensor.data_ptr(),
            item_bytes=geometry.page_bytes,
            items=pages,
            kind="DRAM" if device.type == "cpu" else "VRAM",
            device=device.index or 0,
        )

    @property
    def tensor(self) -> torch.Tensor:
        """The pages. Raises RuntimeError after `close`."""
        if self._tensor is None:
            raise RuntimeError("the KV pool is closed")
        return self._tensor

    def close(self) -> None:
        """Let go of the memory; it is freed with the last view of it. Idempotent."""
        self._tensor = None


class RowPool:
    """Host memory for metadata rows, and its region.

    ``array`` is uint8 ``[rows, row_bytes]``, zeroed.
    """

    def __init__(self, rows: int, row_bytes: int) -> None:
        if rows < 1 or row_bytes < 1:
            raise ValueError(f"{rows} rows of {row_bytes} bytes: at least 1 of each")
        self._array: NDArray[np.uint8] | None = _host_bytes(rows * row_bytes).reshape(
            rows, row_bytes
        )
        self.region = Region(
            name="meta", address=self._array.ctypes.data, item_bytes=row_bytes, items=rows
        )

    @property
    def array(self) -> NDArray[np.uint8]:
        """The rows. Raises RuntimeError after `close`."""
        if self._array is None:
            raise RuntimeError("the row pool is closed")
        return self._array

    def close(self) -> None:
        """Let go of the memory; it is freed with the last view of it. Idempotent."""
        self._array = None


def allocate_pool(geometry: KVGeometry, *, pages: int, device: str) -> KVPool:
    """A zeroed pool on ``cpu``, ``cuda`` or ``cuda:N``.

    Raises ValueError for impossible arguments and what the allocator raises (OSError,
    torch.OutOfMemoryError) if there is no memory.
    """
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r}: allowed are cpu, cuda and cuda:N")
    if device == "cuda":  # no index: pin the current one, a region names its device
        place = torch.device("cuda", torch.cuda.current_device())
    return KVPool(geometry, pages=pages, device=place)


def allocate_rows(rows: int, row_bytes: int) -> RowPool:
    """Zeroed host memory for ``rows`` metadata rows. Raises ValueError, OSError."""
    return RowPool(rows, row_bytes)


def _host_bytes(size: int) -> NDArray[np.uint8]:
    """Zeroed private memory, aligned to a page or, if it spans some, to a huge page; touched.

    The array owns the mapping: it is unmapped with the last view.
    """
    align = HUGE_PAGE_BYTES if size >= HUGE_PAGE_BYTES else mmap.PAGESIZE
    # Private: a shared anonymous mapping is shmem, for which most kernels grant no huge pages.
    area = mmap.mmap(-1, size + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if align == HUGE_PAGE_BYTES:
        area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, dtype=np.uint8)
    start = -whole.ctypes.data % align
    found = whole[start : start + size]
    found[:] = 0
    return found
