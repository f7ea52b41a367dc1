"""The forward pass of the Llama family, over all rows of a batch at once.

    tokens -> embedding -> layers x [norm, qkv, rotate, attend, output, norm, gate/up, down]
           -> norm, for the rows that are read; the head is a call of its own

Only the rows that are read go through the last layer's feed-forward part.
Batches of fewer than `batch.ROWS_MIN` rows are filled up with copies that nobody reads.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from pdcluster_worker.engine.batch import ROWS_MIN, Ints, Layout, filled
from pdcluster_worker.engine.config import LlamaConfig, read_config
from pdcluster_worker.engine.paged_attention import PagedAttention
from pdcluster_worker.engine.rope import RopeTable, rotate
from pdcluster_worker.engine.weights import LayerWeights, LlamaWeights, load_weights
from pdcluster_worker.models.progress import Progress


class Llama:
    """Weights and tables; holds no state between passes."""

    def __init__(
        self, config: LlamaConfig, weights: LlamaWeights, *, attention: PagedAttention
    ) -> None:
        self._attention = attention
        self._config = config
        self._weights = weights
        self._device = weights.embedding.device
        self._norm_shape = (config.hidden,)
        self._rope = RopeTable(
            config.rope,
            head_dim=config.head_dim,
            positions=config.context_tokens,
            dtype=weights.embedding.dtype,
            device=str(self._device),
            factors=weights.rope_factors,
        )

    def forward(self, layout: Layout) -> Tensor | None:
        """See `runners.Model.forward`."""
        rows = len(layout.tokens)
        tokens, positions = self._fill(layout.tokens), self._fill(layout.positions)
        cos, sin = self._rope.at(positions)
        meta = self._attention.plan(layout)
        hidden = self._weights.embedding.index_select(0, tokens)
        spare = (0, 0, 0, max(ROWS_MIN - rows, 0))
        last = len(self._weights.layers) - 1
        for index, layer in enumerate(self._weights.layers):
            q, k, v = self._project(layer, hidden, cos, sin)
            mixed = self._attention.attend(index, q=q[:rows], k=k[:rows], v=v[:rows], meta=meta)
            if index == last:
                wanted = layout.read_rows
                if not len(wanted):
                    return None
                read = self._fill(wanted)
                hidden, mixed = hidden.index_select(0, read), mixed.index_select(0, read)
            elif spare[-1]:
                mixed = functional.pad(mixed, spare)
            hidden = self._feed_forward(layer, layer.output.add(mixed, hidden))
        return self._norm(hidden, self._weights.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `runners.Model.logits`."""
        return self._weights.head(hidden).float()

    def _fill(self, values: Ints) -> Tensor:
        """On the device, filled up."""
        return torch.from_numpy(filled(values)).to(self._device)

    def _project(
        self, layer: LayerWeights, hidden: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values: ``[rows, heads, head_dim]`` each."""
        heads, kv_heads = self._config.heads, self._config.kv_heads
        qkv = layer.qkv(self._norm(hidden, layer.input_norm))
        by_head = qkv.view(-1, heads + 2 * kv_heads, self._config.head_dim)
        rotated = rotate(by_head[:, : heads + kv_heads], cos=cos, sin=sin)
        return rotated[:, :heads], rotated[:, heads:], by_head[:, heads + kv_heads :]

    def _feed_forward(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        both = layer.gate_up(self._norm(hidden, layer.post_norm))
        gate, up = both.chunk(2, -1)
        return layer.down.add(functional.silu(gate).mul_(up), hidden)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, self._norm_shape, weight, self._config.norm_eps)


def load(folder: Path, *, dtype: torch.dtype, pool: Tensor, progress: Progress) -> Llama:
    """See `runners.load_model`."""
    config = read_config(folder)
    weights = load_weights(folder, config, dtype=dtype, device=str(pool.device), progress=progress)
    return Llama(config, weights, attention=PagedAttention(pool, config.heads))
