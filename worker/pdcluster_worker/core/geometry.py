"""The geometry of a KV pool, as plain integers.

One page holds ``page_tokens`` positions of every layer, keys and values, contiguously:
``[page, layer, k/v, head, token, dim]``. So a page is one range and one descriptor, and a head
range of a page is contiguous per (layer, k/v) when tensor-parallel sizes differ.
"""

import hashlib
from dataclasses import dataclass

from pdcluster_worker.core.ports import ModelShape

LAYOUT = "page,layer,kv,head,token,dim"
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGeometry:
    """What two workers must agree on before they exchange a page (E8, E9)."""

    layers: int
    kv_heads: int  # of the whole model
    head_start: int  # heads held here: head_start .. head_start + head_count
    head_count: int
    head_dim: int
    page_tokens: int
    dtype: str
    layout: str = LAYOUT
    model: str = ""  # ModelShape.identity: KV of other weights is not our KV

    def __post_init__(self) -> None:
        """Refuse an impossible geometry."""
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"dtype {self.dtype!r}: allowed are {sorted(DTYPE_BYTES)}")
        counts = (self.layers, self.kv_heads, self.head_count, self.head_dim, self.page_tokens)
        if min(counts) < 1 or self.head_start < 0:
            raise ValueError(f"counts must be positive: {self}")
        if self.head_start + self.head_count > self.kv_heads:
            raise ValueError(f"head range exceeds kv_heads: {self}")

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of all layers, K and V."""
        rows = self.layers * 2 * self.head_count * self.page_tokens
        return rows * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def page_shape(self) -> tuple[int, int, int, int, int]:
        """``(layers, 2, head_count, page_tokens, head_dim)``."""
        return (self.layers, 2, self.head_count, self.page_tokens, self.head_dim)

    def pages_for(self, tokens: int) -> int:
        """Pages that hold ``tokens`` positions."""
        return -(-tokens // self.page_tokens)

    def fingerprint(self) -> str:
        """Hash of everything two peers must share; the head range is negotiated, not shared."""
        shared = (
            self.layers, self.kv_heads, self.head_dim, self.page_tokens, self.dtype, self.layout,
            self.model,
        )  # fmt: skip
        return hashlib.blake2b(repr(shared).encode(), digest_size=8).hexdigest()


def geometry_of(shape: ModelShape, *, page_tokens: int) -> KVGeometry:
    """The geometry of a worker of one rank: all heads."""
    return KVGeometry(
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_start=0,
        head_count=shape.kv_heads,
        head_dim=shape.head_dim,
        page_tokens=page_tokens,
        dtype=shape.dtype,
        model=shape.identity,
    )
