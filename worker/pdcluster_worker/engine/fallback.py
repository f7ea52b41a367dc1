"""Models that transformers computes, with our attention over the same paged pool.

The library calls an attention function that we register. Ours writes the layer's new rows into
their pages and attends over pages, and takes the layer's scale, soft cap and window from the call.
So a pass is one call for the rows of all requests, as in `llama.py`; the library needs no cache of
its own, and its positions are ours.

The model is taken apart once: the base computes states, and what remains around it (the head, with
whatever scale or cap the architecture puts on logits) is asked for the rows that are read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging

from pdcluster_worker.core.ports import SampleParams, SequenceStep
from pdcluster_worker.engine.attention import Rule
from pdcluster_worker.engine.batch import Ints, Layout, filled, lay_out
from pdcluster_worker.engine.fallback_config import read_fallback
from pdcluster_worker.engine.linear import pack_linears
from pdcluster_worker.engine.paged_attention import PagedAttention, Plan
from pdcluster_worker.engine.weights import ROPE_FACTORS
from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.progress import Progress

ATTENTION = "pdcluster_paged"
PROBE_TOKENS = 3


@dataclass(frozen=True, slots=True)
class Paged:
    """One pass, as the library carries it to every layer."""

    attention: PagedAttention
    plan: Plan
    rows: int  # those behind are filling


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """The library's attention function: ``query`` ``[1, heads, rows, head_dim]``.

    Returns ``[1, rows, heads, head_dim]``. ValueError for what we would leave out.
    """
    left_out = [name for name in ("s_aux", "position_bias") if more.get(name) is not None]
    if left_out or any(one is not None for one in mask):
        raise ValueError(f"attention with {', '.join(left_out) or 'a mask'} is not computed")
    paged: Paged = more["paged"]
    rows, spare = paged.rows, query.shape[2] - paged.rows
    q, k, v = (part[0, :, :rows].transpose(0, 1) for part in (query, key, value))
    mixed = paged.attention.attend(
        int(module.layer_idx),  # type: ignore[arg-type]  # the library gives each layer its index
        q=q,
        k=k,
        v=v,
        meta=paged.plan,
        rule=Rule(
            scale=more.get("scaling"),
            softcap=more.get("softcap"),
            window=more.get("sliding_window"),
        ),
    )
    return functional.pad(mixed, (0, 0, 0, spare)).view(1, rows + spare, *q.shape[1:]), None


AttentionInterface.register(ATTENTION, _attend)


class _States:
    """The answer of a base: its states, by name or by place, and nothing else heads look for."""

    def __init__(self, last_hidden_state: Tensor) -> None:
        self.last_hidden_state = last_hidden_state

    def __getitem__(self, place: int) -> Tensor:
        return (self.last_hidden_state,)[place]

    def __getattr__(self, name: str) -> None:
        return None


class _Computed(nn.Module):
    """In the place of a base whose states are there already."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _States:
        return _States(inputs_embeds)


class FallbackModel:
    """See `runners.Model`."""

    def __init__(self, *, base: Any, around: Any, attention: PagedAttention) -> None:
        self._base, self._around = base, around
        self._attention = attention
        self._device = next(base.parameters()).device

    def forward(self, layout: Layout) -> Tensor | None:
        """See `runners.Model.forward`."""
        states: Tensor = self._base(
            input_ids=self._on_device(layout.tokens)[None],
            position_ids=self._on_device(layout.positions)[None],
            use_cache=False,
            paged=Paged(self._attention, self._attention.plan(layout), len(layout.tokens)),
        ).last_hidden_state[0]
        read = layout.read_rows
        return states.index_select(0, self._on_device(read)) if len(read) else None

    def logits(self, hidden: Tensor) -> Tensor:
        """See `runners.Model.logits`."""
        logits: Tensor = self._around(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return logits.float()

    def _on_device(self, values: Ints) -> Tensor:
        return torch.from_numpy(filled(values)).to(self._device)


def load(folder: Path, *, dtype: torch.dtype, pool: Tensor, progress: Progress) -> FallbackModel:
    """Weights into the library's modules, then a short pass on a page of its own.

    ModelError when the files lack a tensor; UnsupportedModel when the pass fails, since the first
    request would.
    """
    config = read_fallback(folder)
    progress("loading weights", 0, 1)
    modules = _modules(folder, dtype).to(pool.device)
    progress("loading weights", 1, 1)
    pack_linears(modules)
    base = modules.base_model
    setattr(modules, modules.base_model_prefix, _Computed())
    scratch = PagedAttention(pool.new_zeros((1, *pool.shape[1:])), config.heads)
    _probe(FallbackModel(base=base, around=modules, attention=scratch), page_tokens=pool.shape[-2])
    attention = PagedAttention(pool, config.heads)
    return FallbackModel(base=base, around=modules, attention=attention)


def _modules(folder: Path, dtype: torch.dtype) -> Any:
    logging.disable_progress_bar()
    try:
        modules, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=ATTENTION, local_files_only=True,
            trust_remote_code=False, use_safetensors=True, output_loading_info=True,
        )  # fmt: skip
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise ModelError(f"{folder.name} cannot be loaded: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"the weights have no tensor {missing[0]!r}")
    if ROPE_FACTORS in report["unexpected_keys"]:
        raise UnsupportedModel(f"{ROPE_FACTORS}: factors of rotation from a GGUF file")
    return modules.eval().requires_grad_(False)


def _probe(model: FallbackModel, *, page_tokens: int) -> None:
    tokens = np.arange(min(PROBE_TOKENS, page_tokens))
    page = np.zeros(1, np.int32)
    step = SequenceStep(key=0, tokens=tokens, start=0, pages=page, sample=SampleParams())
    try:
        with torch.inference_mode():
            states = model.forward(lay_out([step], page_tokens=page_tokens, pages=1))
            assert states is not None
            model.logits(states)
    except Exception as error:
        raise UnsupportedModel(f"a first pass failed: {type(error).__name__}: {error}") from error
