"""Tiny random models of every architecture that transformers computes for us, as folders.

Run as a script it makes the folders where importing transformers must not warn the tests:

    architectures.py NAME FOLDER
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCAB = 320  # 256 bytes and three specials, then merges
WINDOW = 24  # of sliding layers: more than a page, less than the prompts of the tests
CONTEXT = 512
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": None,
}  # fmt: skip
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """What its tiny configuration says beside `SIZES`."""

    more: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # names of `SIZES` that it spells otherwise


ARCHITECTURES = {
    "qwen2": Architecture(
        {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": ALTERNATING},
    ),
    "qwen3": Architecture({"head_dim": 24}),
    "mistral": Architecture({"sliding_window": WINDOW, "head_dim": 16}),
    "gemma2": Architecture(
        {
            "head_dim": 24, "sliding_window": WINDOW, "layer_types": ALTERNATING,
            "query_pre_attn_scalar": 17, "attn_logit_softcapping": 2.5,
            "final_logit_softcapping": 12.0,
        },
    ),
    "gemma3_text": Architecture(
        {
            "head_dim": 24, "sliding_window": WINDOW, "layer_types": ALTERNATING,
            "query_pre_attn_scalar": 40,
        },
    ),
    "phi3": Architecture({"sliding_window": WINDOW}),
    "gpt2": Architecture(
        {
            "vocab_size": VOCAB, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT,
            "bos_token_id": 0, "eos_token_id": 2, "scale_attn_by_inverse_layer_idx": True,
        },
        tuple(SIZES),
    ),
    "llama": Architecture(
        {
            "attention_bias": True,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    "gemma": Architecture({"head_dim": 24}),
    "granite": Architecture(
        {
            "attention_multiplier": 0.3, "logits_scaling": 0.5, "embedding_multiplier": 3.0,
            "residual_multiplier": 0.7,
        },
    ),
    "olmo2": Architecture(),
    "starcoder2": Architecture({"sliding_window": WINDOW}),
    "mixtral": Architecture({"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": Architecture(
        {
            "head_dim": 24, "num_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
        },
    ),
}  # fmt: skip
"""By ``model_type``."""


def write(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Make the model folder; the same bytes for the same ``seed``."""
    import torch
    import transformers

    from pdcluster_worker.models.tiny import TinyOptions, _dump, _tokenizer

    row = ARCHITECTURES[name]
    sizes = {key: value for key, value in SIZES.items() if key not in row.without}
    config = transformers.AutoConfig.for_model(name, **{**sizes, **row.more})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape)
            if parameter.ndim > 1:  # wide enough that greedy choices are no near ties
                parameter.copy_(noise * 1.5 * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.1 * noise)
    model.save_pretrained(folder)
    _dump(folder / "tokenizer.json", _tokenizer(TinyOptions(vocab=VOCAB)))
    return folder


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
