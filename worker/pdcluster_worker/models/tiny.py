"""``tiny://llama?seed=0&layers=4``: a small random Llama with its own tokenizer, for tests.

Every byte of the folder is a function of the options, so two workers that make it independently
share KV. The weights are scaled so that logits spread over a few units and greedy choices are not
near ties. The text is gibberish, the code path is the real one.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.models.byte_alphabet import byte_alphabet
from pdcluster_worker.models.byte_pair import byte_level, tokenizer_json
from pdcluster_worker.models.errors import ModelError

REVISION = 1  # of the recipe below; part of the cache name
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
COMMON = "etaoinshrdlcum"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyOptions:
    """The query part of the source. Counts, all integers."""

    seed: int = 0
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate: int = 256
    vocab: int = 512
    context: int = 8192
    tied: int = 0  # 1: the output head is the embedding

    def __post_init__(self) -> None:
        """Refuse what no Llama has."""
        smallest = 256 + len(SPECIALS)
        if self.vocab < smallest:
            raise ModelError(f"tiny vocab={self.vocab}: at least {smallest}")
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise ModelError("tiny: heads must be a multiple of kv_heads and head_dim even")

    @property
    def cache_name(self) -> str:
        """The entry's name in the cache: equal options, equal name."""
        text = repr(self).encode()
        return f"tiny-{hashlib.sha256(text).hexdigest()[:16]}-r{REVISION}"


def parse(rest: str) -> TinyOptions:
    """What follows ``tiny://``; ModelError names an unknown option or a bad value."""
    architecture, _, query = rest.partition("?")
    if architecture != "llama":
        raise ModelError(f"tiny://{architecture}: only tiny://llama")
    allowed = {field.name for field in fields(TinyOptions)}
    given: dict[str, int] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in allowed:
            raise ModelError(f"tiny://llama: unknown option {key!r}; allowed are {sorted(allowed)}")
        if not value.isdigit() or (key not in ("seed", "tied") and int(value) < 1):
            raise ModelError(f"tiny://llama: {key}={value!r} is not a positive integer")
        given[key] = int(value)
    return TinyOptions(**given)


def write(options: TinyOptions, target: Path) -> None:
    """Make the model folder ``target``."""
    from safetensors.numpy import save_file

    target.mkdir()
    save_file(_weights(options), target / "model.safetensors", metadata={"format": "pt"})
    _dump(target / "config.json", _config(options))
    _dump(target / "tokenizer.json", _tokenizer(options))
    _dump(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIALS[2],
            "pad_token": SPECIALS[0],
            "model_max_length": options.context,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def _config(options: TinyOptions) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.vocab,
        "hidden_size": options.hidden,
        "intermediate_size": options.intermediate,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "head_dim": options.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": options.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": bool(options.tied),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def _weights(options: TinyOptions) -> dict[str, NDArray[np.float32]]:
    draw = np.random.Generator(np.random.PCG64(options.seed))

    def matrix(rows: int, columns: int, *, scale: float) -> NDArray[np.float32]:
        return draw.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)

    def linear(rows: int, columns: int) -> NDArray[np.float32]:
        return matrix(rows, columns, scale=columns**-0.5)

    hidden, inner = options.hidden, options.intermediate
    ones = np.ones(hidden, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": matrix(options.vocab, hidden, scale=hidden**-0.5),
        "model.norm.weight": ones,
    }
    for index in range(options.layers):
        layer = f"model.layers.{index}"
        kv_rows = options.kv_heads * options.head_dim
        tensors |= {
            f"{layer}.input_layernorm.weight": ones,
            f"{layer}.post_attention_layernorm.weight": ones,
            f"{layer}.self_attn.q_proj.weight": linear(options.heads * options.head_dim, hidden),
            f"{layer}.self_attn.k_proj.weight": linear(kv_rows, hidden),
            f"{layer}.self_attn.v_proj.weight": linear(kv_rows, hidden),
            f"{layer}.self_attn.o_proj.weight": linear(hidden, options.heads * options.head_dim),
            f"{layer}.mlp.gate_proj.weight": linear(inner, hidden),
            f"{layer}.mlp.up_proj.weight": linear(inner, hidden),
            f"{layer}.mlp.down_proj.weight": linear(hidden, inner),
        }
    if not options.tied:
        tensors["lm_head.weight"] = matrix(options.vocab, hidden, scale=2.0 * hidden**-0.5)
    return tensors


def _tokenizer(options: TinyOptions) -> dict[str, object]:
    """Byte-level BPE: specials, the 256 bytes, then merges of common letters until it is full."""
    alphabet = byte_alphabet()
    tokens = [*SPECIALS, *alphabet]
    merges: list[list[str]] = []
    space = alphabet[ord(" ")]
    pairs = [(space, letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
    pairs += product(COMMON, COMMON)
    for left, right in pairs[: options.vocab - len(tokens)]:
        merges.append([left, right])
        tokens.append(left + right)
    tokens += [f"<|reserved_{i}|>" for i in range(options.vocab - len(tokens))]
    specials = dict(enumerate(SPECIALS))
    return tokenizer_json(tokens, merges, specials=specials, pre_tokenizer=byte_level())


def _dump(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
