"""Which code computes a model, or why none does: decided from config.json alone.

    refused      a part of the model's state cannot be kept in pages or handed over, or
                 its attention is none that we compute; the reason is told at start
    llama        our own forward pass
    transformers the library's modules, with our attention over the same pages

A refusal comes first: a model of a known type with, say, quantised weights is refused too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pdcluster_worker.engine.config import MODEL_TYPES, obstacle

Config = Mapping[str, Any]  # of config.json

FALLBACK_TYPES = (
    "gemma", "gemma2", "gemma3_text", "gpt2", "granite", "llama", "mistral", "mixtral", "olmo2",
    "phi3", "qwen2", "qwen3", "qwen3_moe", "starcoder2",
)  # fmt: skip
"""``model_type`` of what the library computes for us. Each is compared with it in the tests."""

LAYER_TYPES = ("full_attention", "sliding_attention")

STATE = "a state beside keys and values, which has no place in pages and cannot be handed over yet"
STATE_KEYS = (
    "layers_block_type", "hybrid_override_pattern", "linear_num_value_heads", "mamba_d_state",
    "mamba_num_heads", "ssm_cfg", "state_size",
)  # fmt: skip
STATE_TYPES = ("mamba", "mamba2", "recurrent_gemma", "rwkv", "xlstm")
KV_PER_LAYER_KEYS = (
    "block_configs", "global_head_dim", "num_global_key_value_heads", "num_kv_shared_layers",
)  # fmt: skip


class Runner(StrEnum):
    """What computes a model."""

    LLAMA = "llama"
    TRANSFORMERS = "transformers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``runner`` is None when the model is refused; ``reason`` says why it is not `LLAMA`."""

    runner: Runner | None
    reason: str


def decide(config: Config) -> Decision:
    """Of the object in config.json, as it is or with the library's defaults filled in."""
    refusals = (reason for check in _REFUSALS if (reason := check(config)) is not None)
    if (refused := next(refusals, None)) is not None:
        return Decision(runner=None, reason=refused)
    kind = config.get("model_type")
    reason = obstacle(config)
    if reason is None:
        return Decision(runner=Runner.LLAMA, reason="")
    if kind in FALLBACK_TYPES:
        return Decision(runner=Runner.TRANSFORMERS, reason=reason)
    known = ", ".join(sorted({*MODEL_TYPES, *FALLBACK_TYPES}))
    return Decision(runner=None, reason=f"model_type {kind!r}; supported are {known}")


def _quantised(config: Config) -> str | None:
    if config.get("quantization_config") is None:
        return None
    return "quantization_config: quantised weights are not computed"


def _several_parts(config: Config) -> str | None:
    for key in ("vision_config", "audio_config", "text_config"):
        if config.get(key):
            return f"{key}: a model of several parts; only its text model alone can be served"
    return None


def _encoder(config: Config) -> str | None:
    for key in ("is_encoder_decoder", "add_cross_attention"):
        if config.get(key):
            return f"{key}: keys and values of an encoder cannot be handed over yet"
    return None


def _not_causal(config: Config) -> str | None:
    if config.get("use_bidirectional_attention") or config.get("is_causal") is False:
        return "attention that is not causal: a prompt cannot be computed in chunks"
    return None


def _latent(config: Config) -> str | None:
    if not config.get("kv_lora_rank"):
        return None
    return "kv_lora_rank: latent KV (MLA) has pages of another shape and is not handed over yet"


def _state(config: Config) -> str | None:
    if config.get("model_type") in STATE_TYPES:
        return f"model_type {config['model_type']!r}: {STATE}"
    for key in STATE_KEYS:
        if config.get(key):
            return f"{key}: {STATE}"
    for name in config.get("layer_types") or ():
        if name not in LAYER_TYPES and "attention" not in name.replace("linear_attention", ""):
            return f"layer type {name!r}: {STATE}"
    return None


def _layer_types(config: Config) -> str | None:
    for name in config.get("layer_types") or ():
        if name not in LAYER_TYPES:
            return f"layer type {name!r} is not computed"
    return None


def _kv_per_layer(config: Config) -> str | None:
    if isinstance(config.get("num_key_value_heads"), list):
        return "num_key_value_heads: layers with different KV cannot share a page yet"
    for key in KV_PER_LAYER_KEYS:
        if config.get(key):
            return f"{key}: layers with different KV cannot share a page yet"
    return None


def _growing_rotation(config: Config) -> str | None:
    for kind in _rope_kinds(config):
        if kind in ("dynamic", "longrope"):
            return (
                f"rope type {kind!r}: rotation depends on the text's length so far, "
                "so keys of one request would change with the others in its batch"
            )
    return None


def _rope_kinds(config: Config) -> Iterator[str]:
    """Of the whole model, or of each kind of layer."""
    for key in ("rope_parameters", "rope_scaling"):
        given = config.get(key)
        if isinstance(given, Mapping):
            for part in (given, *(v for v in given.values() if isinstance(v, Mapping))):
                yield part.get("rope_type") or part.get("type") or "default"


_REFUSALS: tuple[Callable[[Config], str | None], ...] = (
    _quantised, _several_parts, _encoder, _not_causal, _latent, _state, _layer_types,
    _kv_per_layer, _growing_rotation,
)  # fmt: skip
