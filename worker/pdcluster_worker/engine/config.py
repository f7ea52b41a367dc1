"""The Llama family as numbers: ``config.json``, checked against what `llama.py` computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.folder import CONFIG, read_json

MODEL_TYPES = ("llama", "mistral")
ROPE_KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary positions: base wavelength and how it is stretched for long contexts."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0  # llama3 only, as the two below
    high_frequency_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What the forward pass needs. Counts and sizes in elements."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    norm_eps: float
    tied: bool  # the output head is the embedding matrix
    rope: RopeConfig


def read_config(folder: Path) -> LlamaConfig:
    """Of a model folder. UnsupportedModel names the first thing that we would compute wrongly."""
    raw = read_json(folder / CONFIG)
    if (reason := obstacle(raw)) is not None:
        raise UnsupportedModel(reason)
    try:
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        return LlamaConfig(
            layers=int(raw["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(raw["intermediate_size"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            vocab=int(raw["vocab_size"]),
            context_tokens=int(raw["max_position_embeddings"]),
            norm_eps=float(raw["rms_norm_eps"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            rope=_read_rope(raw),
        )
    except KeyError as error:
        raise ModelError(f"{folder / CONFIG} has no {error.args[0]!r}") from None


def obstacle(raw: Mapping[str, Any]) -> str | None:
    """The first thing in config.json that `llama.py` would compute wrongly; None: nothing."""
    kind = raw.get("model_type")
    if kind not in MODEL_TYPES:
        return f"model_type {kind!r} is not of the llama family"
    if kind == "mistral" and "sliding_window" not in raw:
        return "no sliding_window in config.json, which then means 4096 and not none"
    for key, allowed in (
        ("attention_bias", (False, None)),
        ("mlp_bias", (False, None)),
        ("sliding_window", (None,)),
        ("hidden_act", ("silu", None)),
        ("partial_rotary_factor", (1, None)),
        ("quantization_config", (None,)),
    ):
        if raw.get(key) not in allowed:
            return f"{key}={raw[key]!r}"
    rope = _rope_kind(_scaling(raw))
    return None if rope in ROPE_KINDS else f"rope scaling {rope!r}"


def _scaling(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Newer files say ``rope_parameters``, older ones ``rope_theta`` and ``rope_scaling``."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _rope_kind(scaling: dict[str, Any]) -> str:
    return scaling.get("rope_type") or scaling.get("type") or "default"


def _read_rope(raw: dict[str, Any]) -> RopeConfig:
    scaling = _scaling(raw)
    theta = float(scaling.get("rope_theta", raw.get("rope_theta", 10000.0)))
    kind = _rope_kind(scaling)
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, kind=kind, factor=float(scaling["factor"]))
    return RopeConfig(
        theta=theta,
        kind=kind,
        factor=float(scaling["factor"]),
        low_frequency_factor=float(scaling["low_freq_factor"]),
        high_frequency_factor=float(scaling["high_freq_factor"]),
        original_context=int(scaling["original_max_position_embeddings"]),
    )
