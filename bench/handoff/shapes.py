"""What is handed over: models, prompt lengths and the scattered pages of one request."""

from dataclasses import dataclass

import numpy as np

from pdcluster_worker.core.geometry import KVGeometry
from pdcluster_worker.core.ports import PageIds

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One row of the table."""

    model: str
    tokens: int
    geometry: KVGeometry

    @property
    def name(self) -> str:
        return f"{self.model}-{self.tokens}"

    @property
    def pages(self) -> int:
        return self.geometry.pages_for(self.tokens)

    @property
    def pool_pages(self) -> int:
        return 2 * self.pages

    @property
    def bytes(self) -> int:
        return self.pages * self.geometry.page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One request's pages, ours and the peer's; neighbours occur by chance only."""

    source: PageIds
    target: PageIds


def _geometry(layers: int, heads: int, *, dim: int, dtype: str) -> KVGeometry:
    return KVGeometry(
        layers=layers,
        kv_heads=heads,
        head_start=0,
        head_count=heads,
        head_dim=dim,
        page_tokens=PAGE_TOKENS,
        dtype=dtype,
    )


MODELS = {
    "tiny": _geometry(4, 2, dim=32, dtype="float32"),
    "smollm2": _geometry(30, 3, dim=64, dtype="bfloat16"),
    "qwen3-0.6b": _geometry(28, 8, dim=128, dtype="bfloat16"),
}
SHAPES = tuple(
    Shape(model=model, tokens=tokens, geometry=geometry)
    for model, geometry in MODELS.items()
    for tokens in (128, 1024)
)


def plans(shape: Shape, *, count: int, seed: int) -> list[Plan]:
    """Random page lists, so that no way profits from a warm cache of one fixed list."""
    rng = np.random.default_rng(seed)

    def pick() -> PageIds:
        return rng.permutation(shape.pool_pages)[: shape.pages].astype(np.int32)

    return [Plan(source=pick(), target=pick()) for _ in range(count)]
