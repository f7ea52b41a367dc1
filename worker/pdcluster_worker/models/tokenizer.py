"""The tokenizer of a model folder: text to tokens and back, and chat to a prompt.

Reads ``tokenizer.json``, ``tokenizer_config.json`` and, when present, ``chat_template.jinja``. All
methods are pure functions of their arguments and may be called from several threads.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from pdcluster_worker.core.clock import Clock, SystemClock
from pdcluster_worker.models.byte_alphabet import byte_of_character
from pdcluster_worker.models.chat_template import ChatTemplate
from pdcluster_worker.models.detokenizer import REPLACEMENT, Detokenizer
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.folder import (
    CHAT_TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    eos_token_ids,
    read_json,
    read_optional_json,
)

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class Tokenizer:
    """ModelError when the folder has no tokenizer or it cannot be read."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        path = folder / TOKENIZER
        self._byte_level = "ByteLevel" in _decoder_types(read_json(path))
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            # The library raises bare Exception.
            raise ModelError(f"{path}: {error}") from error
        self._special = frozenset(
            index for index, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        )  # fmt: skip
        config = read_optional_json(folder / TOKENIZER_CONFIG)
        self.special_tokens = _special_tokens(config)
        self.eos_token_ids = self._eos(folder)
        self.vocab: int = self._tokenizer.get_vocab_size()
        self._bytes = byte_of_character()
        try:
            self._template = ChatTemplate(
                _template_source(folder, config),
                special_tokens=self.special_tokens,
                clock=clock or SystemClock(),
            )
        except ValueError as error:
            raise ModelError(f"{folder}: {error}") from error

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Tokens of a prompt; ``add_special`` puts in front what the model wants there."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD, unknown tokens nothing."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def token_text(self, token: int) -> str:
        """How one token is shown in logprobs; special ones by name."""
        return self.decode([token], skip_special=False)

    def token_bytes(self, token: int) -> bytes:
        """What one token adds to the text; may be part of a character. Special ones by name."""
        text = self.token_text(token)
        if REPLACEMENT not in text:
            return text.encode()
        raw: str = self._tokenizer.id_to_token(token) or ""
        if self._byte_level and all(character in self._bytes for character in raw):
            return bytes(self._bytes[character] for character in raw)
        if raw.startswith("<0x") and raw.endswith(">"):
            return bytes([int(raw[3:-1], 16)])
        return text.encode()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the model's template writes it; see `ChatTemplate.render`."""
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, extra=extra
        )

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Tokens of a conversation, ready for the answer. ValueError when the template refuses."""
        return self.encode(self.render_chat(messages), add_special=False)

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """A fresh one for an answer."""

        def drops(token: int) -> bool:
            return (skip_special and token in self._special) or not 0 <= token < self.vocab

        def decode(ids: Sequence[int]) -> str:
            return self.decode(ids, skip_special=skip_special)

        return Detokenizer(decode, drops)

    def _eos(self, folder: Path) -> tuple[int, ...]:
        """The configurations' ids and the tokenizer's own eos token."""
        found = set(eos_token_ids(folder))
        own = self.special_tokens.get("eos_token")
        index = self._tokenizer.token_to_id(own) if own is not None else None
        if index is not None:
            found.add(index)
        return tuple(sorted(found))


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> text; files write a token as a string or as an object."""
    found: dict[str, str] = {}
    for name in SPECIAL_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The .jinja file wins; a list of named templates means its ``default``."""
    file = folder / CHAT_TEMPLATE
    if file.exists():
        return file.read_text(encoding="utf-8")
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {item["name"]: item["template"] for item in value}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _decoder_types(tokenizer: Mapping[str, Any]) -> set[str]:
    decoder = tokenizer.get("decoder") or {}
    return {part["type"] for part in (decoder, *decoder.get("decoders", ())) if "type" in part}
