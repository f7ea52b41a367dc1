"""A GGUF file as a model folder: configuration, float32 weights, tokenizer.

Done once per file, so that no worker start pays for reading GGUF (its metadata alone takes seconds)
nor for dequantisation. Weights are bit for bit those that transformers loads from the same file.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.gguf_tokenizer import convert_tokenizer
from pdcluster_worker.models.progress import Progress

ARCHITECTURES = ("llama",)
ROPE_FACTORS = ("rope_freqs.weight", "model.rope_factors")
TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    ROPE_FACTORS[0]: ROPE_FACTORS[1],
}
IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

Fields = dict[str, Any]


def convert(file: Path, target: Path, *, progress: Progress) -> None:
    """Write the folder ``target``. ModelError or UnsupportedModel names what stands in the way."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    what = f"converting {file.name}"
    progress(what, 0, 100)
    try:
        reader = GGUFReader(file)
    except ValueError as error:
        raise ModelError(f"{file} is not a readable GGUF file: {error}") from error
    fields: Fields = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(fields, {tensor.name for tensor in reader.tensors})
    tokenizer, tokenizer_config = convert_tokenizer(fields)
    progress(what, 10, 100)
    weights: dict[str, NDArray[np.float32]] = {}
    for index, tensor in enumerate(reader.tensors):
        weights[_name(tensor.name)] = _values(tensor, config)
        progress(what, 10 + 80 * (index + 1) // len(reader.tensors), 100)
    target.mkdir()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    for name, content in (
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", tokenizer_config),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (target / name).write_text(text, encoding="utf-8")
    progress(what, 100, 100)


def _config(fields: Fields, tensors: set[str]) -> dict[str, Any]:
    architecture = fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModel(f"GGUF architecture {architecture!r}; supported are {ARCHITECTURES}")

    def of(key: str) -> Any:
        name = f"{architecture}.{key}"
        if name not in fields:
            raise ModelError(f"the GGUF file has no {name}")
        return fields[name]

    if fields.get(f"{architecture}.expert_count"):
        raise UnsupportedModel("GGUF mixture of experts (expert_count > 0)")
    heads, hidden = of("attention.head_count"), of("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": fields.get(f"{architecture}.attention.key_length", hidden // heads),
        "hidden_act": "silu",
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.get(f"{architecture}.rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(fields, architecture),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }


def _rope_scaling(fields: Fields, architecture: str) -> dict[str, Any] | None:
    kind = fields.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise UnsupportedModel(f"GGUF rope scaling {kind!r}; supported are 'none' and 'linear'")
    return {"rope_type": "linear", "factor": fields[f"{architecture}.rope.scaling.factor"]}


def _name(name: str) -> str:
    """The tensor's name in a safetensors file of the same model."""
    if name in TOP_LEVEL:
        return TOP_LEVEL[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in IN_BLOCK and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{IN_BLOCK[parts[2]]}.weight"
    raise UnsupportedModel(f"GGUF tensor {name!r} has no place in a Llama")


def _values(tensor: Any, config: dict[str, Any]) -> NDArray[np.float32]:
    """Dequantised, in the row order of the original checkpoint."""
    from gguf import dequantize

    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        raise UnsupportedModel(f"GGUF quantisation {tensor.tensor_type.name}") from None
    values = np.ascontiguousarray(values, dtype=np.float32)
    if tensor.name.endswith("attn_q.weight"):
        return _half_split(values, config["num_attention_heads"])
    if tensor.name.endswith("attn_k.weight"):
        return _half_split(values, config["num_key_value_heads"])
    return values


def _half_split(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """GGUF interleaves the two halves of a rotated head; undo that."""
    rows, columns = values.shape
    halves = values.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)
