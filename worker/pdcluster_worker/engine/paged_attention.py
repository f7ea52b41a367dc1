"""Attention over the paged pool with stock torch operations.

The pool is a matrix whose rows are (page, layer, k/v, head) blocks, ``page_tokens * head_dim``
wide. A view of it that starts at a layer's first block turns one index list, made once per batch,
into that layer's keys and values: per layer, decode costs one gather, two batched products and a
softmax for the whole group. Query heads that share a KV head are folded into the query length, so
nothing is repeated in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pdcluster_worker.engine.batch import Layout, Span

PADDED_ROWS_SPLIT = 2048  # a decode group is split when it would gather this many rows in vain
PRODUCT_ROWS_MIN = 512  # below, the fused kernel's smaller overhead wins in bfloat16


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one new token each, padded to the same number of pages."""

    begin: int  # rows begin .. begin + count
    count: int
    blocks: Tensor  # [2 * count * kv_heads * pages] block rows: keys, then values
    visible: int  # gathered rows per sequence, cut to this many
    mask: Tensor | None  # [count * kv_heads, 1, visible]; None when all see everything


@dataclass(frozen=True, slots=True)
class Prompt:
    """A sequence with several new tokens, perhaps after earlier chunks."""

    begin: int
    count: int
    blocks: Tensor | None  # as above for one sequence; None when nothing precedes
    visible: int
    mask: Tensor | None  # [count, visible], causal, aligned to the end


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch."""

    slots: Tensor  # [rows * kv_heads] where new rows go, in units of head_dim elements
    decode: tuple[DecodeGroup, ...]
    prompts: tuple[Prompt, ...]


class PagedAttention:
    """`Attention` for CPU, and correct on any device."""

    def __init__(self, pool: Tensor, heads: int) -> None:
        _, layers, _, kv_heads, page_tokens, head_dim = pool.shape
        self._kv_heads, self._page_tokens, self._head_dim = kv_heads, page_tokens, head_dim
        self._heads = heads
        self._device, self._dtype = pool.device, pool.dtype
        self._scale = head_dim**-0.5
        self._page_blocks = layers * 2 * kv_heads
        blocks = pool.view(-1, page_tokens * head_dim)
        slots = pool.view(-1, head_dim)
        starts = [layer * 2 * kv_heads for layer in range(layers)]
        self._blocks = [blocks[start:] for start in starts]
        self._key_slots = [slots[start * page_tokens :] for start in starts]
        self._value_slots = [slots[(start + kv_heads) * page_tokens :] for start in starts]
        self._unused = torch.zeros((1, 1, 1), dtype=pool.dtype, device=pool.device)

    def plan(self, layout: Layout) -> Plan:
        """Index lists and masks."""
        pages = torch.from_numpy(layout.pages).to(self._device)
        offsets = torch.from_numpy(layout.offsets).to(self._device)
        block = (pages * self._page_blocks)[:, None] + self._head_range()
        slots = block * self._page_tokens + offsets[:, None]
        groups = _split(layout.decode, self._page_tokens)
        return Plan(
            slots.view(-1),
            tuple(self._decode_group(group) for group in groups),
            tuple(self._prompt(span) for span in layout.prompts),
        )

    def attend(self, layer: int, *, q: Tensor, k: Tensor, v: Tensor, meta: Plan) -> Tensor:
        """See `Attention.attend`."""
        width = self._head_dim
        self._key_slots[layer].index_copy_(0, meta.slots, k.reshape(-1, width))
        self._value_slots[layer].index_copy_(0, meta.slots, v.reshape(-1, width))
        parts = [self._decode(layer, q, group) for group in meta.decode]
        parts += [self._extend(layer, prompt, q=q, k=k, v=v) for prompt in meta.prompts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decode(self, layer: int, q: Tensor, group: DecodeGroup) -> Tensor:
        count, kv_heads = group.count, self._kv_heads
        keys, values = self._gather(layer, group.blocks, count * kv_heads, group.visible)
        query = q[group.begin : group.begin + count].reshape(count * kv_heads, -1, self._head_dim)
        if self._dtype != torch.float32 and count * group.visible < PRODUCT_ROWS_MIN:
            out = functional.scaled_dot_product_attention(query, keys, values, group.mask)
            return out.view(count, -1)
        transposed = keys.transpose(1, 2)
        if group.mask is None:
            scores = torch.baddbmm(self._unused, query, transposed, beta=0.0, alpha=self._scale)
        else:
            scores = torch.baddbmm(group.mask, query, transposed, alpha=self._scale)
        return torch.bmm(torch.softmax(scores, -1), values).view(count, -1)

    def _extend(self, layer: int, prompt: Prompt, *, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = slice(prompt.begin, prompt.begin + prompt.count)
        query = q[rows].transpose(0, 1)
        if prompt.blocks is None:
            keys, values = k[rows].transpose(0, 1), v[rows].transpose(0, 1)
        else:
            keys, values = self._gather(layer, prompt.blocks, self._kv_heads, prompt.visible)
        out = functional.scaled_dot_product_attention(
            query[None],
            keys[None],
            values[None],
            attn_mask=prompt.mask,
            is_causal=prompt.mask is None,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).reshape(prompt.count, -1)

    def _gather(
        self, layer: int, blocks: Tensor, sequences: int, visible: int
    ) -> tuple[Tensor, Tensor]:
        """Keys and values ``[sequences, visible, head_dim]``, copied out of their pages."""
        both = self._blocks[layer].index_select(0, blocks)
        both = both.view(2, sequences, -1, self._head_dim)[:, :, :visible]
        return both[0], both[1]

    def _decode_group(self, spans: Sequence[Span]) -> DecodeGroup:
        visible = max(span.visible for span in spans)
        lengths = torch.tensor([span.visible for span in spans], device=self._device)
        mask = None
        if any(span.visible != visible for span in spans):
            hidden = torch.arange(visible, device=self._device) >= lengths[:, None]
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
            mask = mask.masked_fill_(hidden, float("-inf"))
            mask = mask.repeat_interleave(self._kv_heads, 0).unsqueeze(1)
        return DecodeGroup(spans[0].begin, len(spans), self._block_list(spans), visible, mask)

    def _prompt(self, span: Span) -> Prompt:
        if span.step.start == 0:
            return Prompt(span.begin, span.count, None, span.count, None)
        columns = torch.arange(span.visible, device=self._device)
        last = torch.arange(span.step.start, span.visible, device=self._device)
        mask = torch.zeros((span.count, span.visible), dtype=self._dtype, device=self._device)
        mask = mask.masked_fill_(columns > last[:, None], float("-inf"))
        return Prompt(span.begin, span.count, self._block_list([span]), span.visible, mask)

    def _block_list(self, spans: Sequence[Span]) -> Tensor:
        """Block rows of layer 0 in the order (k/v, sequence, head, page), flat.

        Short sequences are padded with page 0: gathered, then masked.
        """
        counts = [-(-span.visible // self._page_tokens) for span in spans]
        table = torch.zeros((len(spans), max(counts)), dtype=torch.int64)
        for row, span, count in zip(table, spans, counts, strict=True):
            row[:count] = torch.from_numpy(span.step.pages[:count])
        table = (table * self._page_blocks).to(self._device)
        by_head = table[:, None, :] + self._head_range()[None, :, None]
        return torch.stack((by_head, by_head + self._kv_heads)).view(-1)

    def _head_range(self) -> Tensor:
        return torch.arange(self._kv_heads, device=self._device)


def _split(spans: Sequence[Span], page_tokens: int) -> list[Sequence[Span]]:
    """Groups of neighbours (sorted by pages) such that padding stays small."""
    groups: list[Sequence[Span]] = []
    begin = wasted = 0
    for index in range(1, len(spans)):
        grown = spans[index].step.start // page_tokens - spans[index - 1].step.start // page_tokens
        wasted += grown * page_tokens * (index - begin)
        if wasted > PADDED_ROWS_SPLIT:
            groups.append(spans[begin:index])
            begin, wasted = index, 0
    if spans:
        groups.append(spans[begin:])
    return groups
