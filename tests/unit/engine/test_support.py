"""Which code computes a model, and the exact words where none does."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pdcluster_worker.engine.config import MODEL_TYPES
from pdcluster_worker.engine.runners import RUNNERS
from pdcluster_worker.engine.support import FALLBACK_TYPES, Runner, decide
from tests.unit.engine.architectures import ARCHITECTURES

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_act": "silu"}
STATE = "a state beside keys and values, which has no place in pages and cannot be handed over yet"
PER_LAYER = "layers with different KV cannot share a page yet"
ROTATION = (
    "rotation depends on the text's length so far, "
    "so keys of one request would change with the others in its batch"
)
TYPES = (
    "gemma, gemma2, gemma3_text, gpt2, granite, llama, mistral, mixtral, olmo2, phi3, qwen2, "
    "qwen3, qwen3_moe, starcoder2"
)


@pytest.mark.parametrize(
    ("config", "runner", "reason"),
    [
        (LLAMA, Runner.LLAMA, ""),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}, Runner.LLAMA, ""),
        ({"model_type": "mistral", "sliding_window": None}, Runner.LLAMA, ""),
        ({"model_type": "mistral", "sliding_window": 9}, Runner.TRANSFORMERS, "sliding_window=9"),
        (
            {"model_type": "mistral"},
            Runner.TRANSFORMERS,
            "no sliding_window in config.json, which then means 4096 and not none",
        ),
        (LLAMA | {"attention_bias": True}, Runner.TRANSFORMERS, "attention_bias=True"),
        (LLAMA | {"hidden_act": "gelu"}, Runner.TRANSFORMERS, "hidden_act='gelu'"),
        (
            LLAMA | {"partial_rotary_factor": 0.5},
            Runner.TRANSFORMERS,
            "partial_rotary_factor=0.5",
        ),
        (
            LLAMA | {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
            Runner.TRANSFORMERS,
            "rope scaling 'yarn'",
        ),
        (
            {"model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"]},
            Runner.TRANSFORMERS,
            "model_type 'gemma3_text' is not of the llama family",
        ),
    ],
)
def test_chosen(config: dict[str, Any], runner: Runner, reason: str) -> None:
    decision = decide(config)
    assert (decision.runner, decision.reason) == (runner, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "falcon"}, f"model_type 'falcon'; supported are {TYPES}"),
        ({"model_type": None}, f"model_type None; supported are {TYPES}"),
        (
            {"quantization_config": {"bits": 4}},
            "quantization_config: quantised weights are not computed",
        ),
        (
            {"model_type": "deepseek_v3", "kv_lora_rank": 512},
            "kv_lora_rank: latent KV (MLA) has pages of another shape and is not handed over yet",
        ),
        ({"model_type": "mamba2"}, f"model_type 'mamba2': {STATE}"),
        ({"model_type": "x", "mamba_d_state": 16}, f"mamba_d_state: {STATE}"),
        (
            {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]},
            f"layer type 'linear_attention': {STATE}",
        ),
        ({"model_type": "lfm2", "layer_types": ["conv"]}, f"layer type 'conv': {STATE}"),
        ({"layer_types": ["chunked_attention"]}, "layer type 'chunked_attention' is not computed"),
        (
            {"model_type": "t5", "is_encoder_decoder": True},
            "is_encoder_decoder: keys and values of an encoder cannot be handed over yet",
        ),
        (
            {"model_type": "gpt2", "add_cross_attention": True},
            "add_cross_attention: keys and values of an encoder cannot be handed over yet",
        ),
        (
            {"model_type": "gemma3", "vision_config": {"a": 1}, "text_config": {"b": 1}},
            "vision_config: a model of several parts; only its text model alone can be served",
        ),
        (
            {"model_type": "gemma3_text", "use_bidirectional_attention": True},
            "attention that is not causal: a prompt cannot be computed in chunks",
        ),
        ({"num_key_value_heads": [1, 2]}, f"num_key_value_heads: {PER_LAYER}"),
        ({"model_type": "x", "num_kv_shared_layers": 10}, f"num_kv_shared_layers: {PER_LAYER}"),
        ({"model_type": "x", "global_head_dim": 512}, f"global_head_dim: {PER_LAYER}"),
        (
            {"model_type": "phi3", "rope_scaling": {"type": "longrope"}},
            f"rope type 'longrope': {ROTATION}",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}},
            f"rope type 'dynamic': {ROTATION}",
        ),
    ],
)
def test_refused(change: dict[str, Any], reason: str) -> None:
    decision = decide(LLAMA | change)
    assert (decision.runner, decision.reason) == (None, reason)


def test_every_type_that_is_supported_is_compared_with_the_library() -> None:
    assert set(FALLBACK_TYPES) == set(ARCHITECTURES)
    assert list(FALLBACK_TYPES) == sorted(FALLBACK_TYPES)


def test_the_documentation_names_every_type_and_every_refused_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    assert {*FALLBACK_TYPES, *MODEL_TYPES} <= named
    assert {"kv_lora_rank", "quantization_config", "num_kv_shared_layers", "longrope"} <= named


def test_every_runner_is_there() -> None:
    assert set(RUNNERS) == set(Runner)
    for where in RUNNERS.values():
        module, _, name = where.partition(":")
        assert callable(vars(import_module(module))[name])


def test_a_default_that_the_file_leaves_out_is_refused_too(tmp_path: Any) -> None:
    """The library fills in layer types; the file alone looks harmless."""
    import json

    from pdcluster_worker.engine.fallback_config import read_fallback
    from pdcluster_worker.models.errors import ModelError, UnsupportedModel

    bare = {"model_type": "qwen3_next", "num_hidden_layers": 4}
    (tmp_path / "config.json").write_text(json.dumps(bare))
    with pytest.raises(UnsupportedModel, match="a state beside keys and values"):
        read_fallback(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_type"}))
    with pytest.raises(ModelError, match="cannot be read"):
        read_fallback(tmp_path)
