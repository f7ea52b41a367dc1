"""Attention over the paged pool with stock torch operations.

The pool is a matrix whose rows are (page, layer, k/v, head) blocks, ``page_tokens * head_dim``
wide. A view of it that starts at a layer's first block turns one index list, made once per batch,
into that layer's keys and values: per layer, decode costs one gather, two batched products and a
softmax for the whole group. Query heads that share a KV head are folded into the query length, so
nothing is repeated in memory. Gathered blocks are used whole, with what is behind a sequence's end
masked: cutting them would make the library copy them once more.

A sliding window is a mask too: its layers keep, and hand over, all positions like the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from pdcluster_worker.engine.attention import PLAIN, Rule
from pdcluster_worker.engine.batch import Layout, Span

PADDED_ROWS_SPLIT = 2048  # a decode group is split when it would gather this many rows in vain
PRODUCT_ROWS_MIN = 512  # below, the fused kernel's smaller overhead wins in 16-bit dtypes
TILE_ROWS = 256  # prompt rows per product; later columns of a causal triangle are left out


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one new token each, padded to the same number of pages."""

    begin: int  # rows begin .. begin + count
    count: int
    blocks: Tensor  # [2 * count * kv_heads * pages] block rows: keys, then values
    width: int  # gathered rows per sequence
    mask: Tensor | None  # [count * kv_heads, 1, width], added to scores; None: all is visible


@dataclass(frozen=True, slots=True)
class Tile:
    """Some rows of a prompt and the rows they see."""

    begin: int  # within the prompt
    count: int
    columns: slice  # of the product; those before are hidden from every row of the tile
    mask: Tensor  # [count, n], added to the scores of the last n columns; the others are visible


@dataclass(frozen=True, slots=True)
class Prompt:
    """A sequence with several new tokens, perhaps after earlier chunks."""

    begin: int
    count: int
    blocks: Tensor | None  # as above for one sequence; None when nothing precedes
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What the layers of one window see of a batch."""

    decode: tuple[DecodeGroup, ...]
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch."""

    layout: Layout
    slots: Tensor  # [rows * kv_heads] where new rows go, in units of head_dim elements
    longest: int  # positions of the longest sequence: a wider window hides nothing
    views: dict[int | None, View] = field(default_factory=dict)  # by window, as layers ask


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
        return Plan(layout, slots.view(-1), int(layout.positions.max()) + 1)

    def attend(
        self, layer: int, *, q: Tensor, k: Tensor, v: Tensor, meta: Plan, rule: Rule = PLAIN
    ) -> Tensor:
        """See `Attention.attend`."""
        width = self._head_dim
        self._key_slots[layer].index_copy_(0, meta.slots, k.reshape(-1, width))
        self._value_slots[layer].index_copy_(0, meta.slots, v.reshape(-1, width))
        view = self._view(meta, rule.window)
        parts = [self._decode(layer, q, group=group, rule=rule) for group in view.decode]
        parts += [self._extend(layer, one, q=q, k=k, v=v, rule=rule) for one in view.prompts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _view(self, plan: Plan, window: int | None) -> View:
        if window is not None and window >= plan.longest:
            window = None
        if window not in plan.views:
            groups = _split(plan.layout.decode, self._page_tokens)
            plan.views[window] = View(
                tuple(self._decode_group(group, window) for group in groups),
                tuple(self._prompt(span, window) for span in plan.layout.prompts),
            )
        return plan.views[window]

    def _decode(self, layer: int, q: Tensor, *, group: DecodeGroup, rule: Rule) -> Tensor:
        count, kv_heads = group.count, self._kv_heads
        keys, values = self._gather(layer, group.blocks, count * kv_heads)
        query = q[group.begin : group.begin + count].reshape(count * kv_heads, -1, self._head_dim)
        small = self._dtype != torch.float32 and count * group.width < PRODUCT_ROWS_MIN
        if small and rule.softcap is None:
            out = functional.scaled_dot_product_attention(
                query, keys, values, group.mask, scale=rule.scale
            )
            return out.view(count, -1)
        scores = self._scores(query, keys, rule)
        if group.mask is not None:
            scores += group.mask
        return torch.bmm(torch.softmax(scores, -1), values).view(count, -1)

    def _extend(
        self, layer: int, prompt: Prompt, *, q: Tensor, k: Tensor, v: Tensor, rule: Rule
    ) -> Tensor:
        rows = slice(prompt.begin, prompt.begin + prompt.count)
        if prompt.blocks is None:
            keys, values = k[rows].transpose(0, 1), v[rows].transpose(0, 1).contiguous()
        else:
            keys, values = self._gather(layer, prompt.blocks, self._kv_heads)
        parts = [
            self._tile(q[rows], tile, keys=keys, values=values, rule=rule) for tile in prompt.tiles
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _tile(self, q: Tensor, tile: Tile, *, keys: Tensor, values: Tensor, rule: Rule) -> Tensor:
        kv_heads, width = self._kv_heads, self._head_dim
        # [rows, kv heads, group, dim] -> [kv heads, group * rows, dim]
        query = q[tile.begin : tile.begin + tile.count].view(tile.count, kv_heads, -1, width)
        folded = query.permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
        scores = self._scores(folded, keys[:, tile.columns], rule)
        by_row = scores.view(kv_heads, -1, tile.count, scores.shape[-1])
        by_row[..., -tile.mask.shape[-1] :] += tile.mask
        out = torch.bmm(torch.softmax(scores, -1), values[:, tile.columns])
        unfolded = out.view(kv_heads, -1, tile.count, width).permute(2, 0, 1, 3)
        return unfolded.reshape(tile.count, -1)

    def _scores(self, query: Tensor, keys: Tensor, rule: Rule) -> Tensor:
        """Products ``[n, rows, columns]``, scaled and capped."""
        scale = self._scale if rule.scale is None else rule.scale
        transposed = keys.transpose(1, 2)
        scores = torch.baddbmm(self._unused, query, transposed, beta=0.0, alpha=scale)
        if rule.softcap is not None:
            scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
        return scores

    def _gather(self, layer: int, blocks: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
        """Keys and values ``[sequences, rows, head_dim]``, copied out of their pages."""
        both = self._blocks[layer].index_select(0, blocks)
        both = both.view(2, sequences, -1, self._head_dim)
        return both[0], both[1]

    def _decode_group(self, spans: Sequence[Span], window: int | None) -> DecodeGroup:
        width = self._padded(max(span.visible for span in spans))
        mask = None
        if window is not None or any(span.visible != width for span in spans):
            last = torch.tensor([span.visible - 1 for span in spans], device=self._device)
            mask = self._mask(last, columns=(0, width), window=window)
            mask = mask.repeat_interleave(self._kv_heads, 0).unsqueeze(1)
        return DecodeGroup(spans[0].begin, len(spans), self._block_list(spans), width, mask)

    def _prompt(self, span: Span, window: int | None) -> Prompt:
        start = span.step.start
        blocks = self._block_list([span]) if start else None
        limit = self._padded(span.visible) if start else span.count
        tiles: list[Tile] = []
        for begin in range(0, span.count, TILE_ROWS):
            count = min(TILE_ROWS, span.count - begin)
            first = start + begin
            width = limit if begin + count == span.count else first + count
            last = torch.arange(first, first + count, device=self._device)
            low, masked_from = 0, first
            if window is not None and first + count > window:
                low = masked_from = max(0, first + 1 - window)
            mask = self._mask(last, columns=(masked_from, width), window=window)
            tiles.append(Tile(begin, count, slice(low, width), mask))
        return Prompt(span.begin, span.count, blocks, tuple(tiles))

    def _mask(self, last: Tensor, *, columns: tuple[int, int], window: int | None) -> Tensor:
        """0 where a row whose own column is ``last`` sees, else -inf: ``[len(last), columns]``."""
        places = torch.arange(*columns, device=self._device)
        mask = torch.zeros((len(last), len(places)), dtype=self._dtype, device=self._device)
        mask.masked_fill_(places > last[:, None], float("-inf"))
        if window is not None:
            mask.masked_fill_(places <= last[:, None] - window, float("-inf"))
        return mask

    def _padded(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens) * self._page_tokens

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
