"""The tokenizer inside a GGUF file, as the files that everything else reads.

A GGUF keeps the vocabulary and the merges, and only a *name* for how text is cut before merging;
the table below says what each name means.
"""

from typing import Any

from pdcluster_worker.models.byte_alphabet import byte_alphabet
from pdcluster_worker.models.byte_pair import Json, byte_level, tokenizer_json
from pdcluster_worker.models.errors import ModelError, UnsupportedModel

CONTROL = 3  # token type: never text
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL_NAMES = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def _sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(pattern: str) -> Json:
    split = {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False
    }  # fmt: skip
    return _sequence(split, byte_level(use_regex=False))


PRE_TOKENIZERS: dict[str, Json] = {
    "default": byte_level(),
    "gpt-2": byte_level(),
    "smollm": _sequence({"type": "Digits", "individual_digits": True}, byte_level()),
    "llama-bpe": _split(LLAMA3_SPLIT),
    "llama3": _split(LLAMA3_SPLIT),
}


def convert_tokenizer(fields: dict[str, Any]) -> tuple[Json, Json]:
    """``tokenizer.json`` and ``tokenizer_config.json`` from a GGUF file's metadata."""
    kind, cut = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise UnsupportedModel(f"GGUF tokenizer {kind!r}; supported is 'gpt2' (byte-level)")
    if cut not in PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"GGUF pre-tokenizer {cut!r}; supported are {sorted(PRE_TOKENIZERS)}"
        )
    if "tokenizer.ggml.merges" not in fields:
        raise ModelError("the GGUF file has no tokenizer.ggml.merges")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields.get("tokenizer.ggml.token_type") or []
    alphabet = set(byte_alphabet())
    # A control token is spelt in plain characters; one that is not is a mislabelled ordinary token.
    specials = {
        index: token
        for index, (token, type_) in enumerate(zip(tokens, types, strict=False))
        if type_ == CONTROL and set(token) <= alphabet
    }
    merges = [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"]]
    content = tokenizer_json(tokens, merges, specials=specials, pre_tokenizer=PRE_TOKENIZERS[cut])
    if fields.get("tokenizer.ggml.add_bos_token"):
        content["post_processor"] = _prefix(tokens, int(fields[SPECIAL_NAMES["bos_token"]]))
    return content, _config(fields, tokens)


def _prefix(tokens: list[str], index: int) -> Json:
    """Puts the token ``index`` in front of every text."""
    token = tokens[index]
    return {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": token, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"SpecialToken": {"id": token, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 0}},
        ],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


def _config(fields: dict[str, Any], tokens: list[str]) -> Json:
    config: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields.get(f"{fields['general.architecture']}.context_length"),
    }
    for name, key in SPECIAL_NAMES.items():
        if key in fields:
            config[name] = tokens[int(fields[key])]
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return config
