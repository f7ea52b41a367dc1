"""The seam between the model and attention over the paged pool.

A new kernel is one new file that implements `Attention`, and one line in `torch_engine`. An
implementation owns the pool's interpretation: it writes the new rows and reads all rows.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from pdcluster_worker.engine.batch import Layout

Meta = TypeVar("Meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a layer turns products of queries and keys into weights."""

    scale: float | None = None  # of the products; None: head_dim ** -0.5
    softcap: float | None = None  # scaled products x become softcap * tanh(x / softcap)
    window: int | None = None  # positions that a query sees, its own included; None: all before it


PLAIN = Rule()


class Attention(Protocol[Meta]):
    """Causal attention over a pool ``[pages, layers, 2, kv_heads, page_tokens, head_dim]``."""

    def plan(self, layout: Layout) -> Meta:
        """Everything about a batch that does not depend on the layer; once per pass."""
        ...

    def attend(
        self, layer: int, *, q: Tensor, k: Tensor, v: Tensor, meta: Meta, rule: Rule = PLAIN
    ) -> Tensor:
        """Write the new rows of ``layer`` into the pool, then attend.

        ``q`` is ``[rows, heads, head_dim]``, ``k`` and ``v`` ``[rows, kv_heads, head_dim]``, in the
        pool's dtype, already rotated. Returns ``[rows, heads * head_dim]``.
        """
        ...


def check_pool(pool: Tensor, expected: tuple[int, ...], *, dtype: torch.dtype) -> None:
    """ValueError unless ``pool`` is contiguous ``[pages, *expected]`` of ``dtype``."""
    if tuple(pool.shape[1:]) != expected or pool.dtype != dtype or not pool.is_contiguous():
        raise ValueError(
            f"the pool is {pool.dtype} {tuple(pool.shape)}, "
            f"expected contiguous {dtype} [pages, {', '.join(map(str, expected))}]"
        )
