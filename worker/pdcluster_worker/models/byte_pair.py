"""Writes ``tokenizer.json`` for byte-level byte-pair vocabularies."""

from collections.abc import Mapping, Sequence

Json = dict[str, object]


def tokenizer_json(
    tokens: Sequence[str],
    merges: Sequence[Sequence[str]],
    *,
    specials: Mapping[int, str],
    pre_tokenizer: Json,
) -> Json:
    """The file's content. ``tokens`` by id, ``merges`` best first, ``specials`` id -> text."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special_token(i, text) for i, text in sorted(specials.items())],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level(),
        "model": _model(tokens, merges),
    }


def byte_level(*, use_regex: bool = True) -> Json:
    """The pre-tokenizer or decoder section; ``use_regex`` splits as GPT-2 did."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _special_token(index: int, text: str) -> Json:
    return {
        "id": index,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _model(tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [list(pair) for pair in merges],
    }
