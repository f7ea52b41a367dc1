"""Streamed pieces add up to the whole text and never hold half a character."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from pdcluster_worker.models.detokenizer import REPLACEMENT, WINDOW_MAX, Detokenizer
from pdcluster_worker.models.tokenizer import Tokenizer
from tests.unit.models.texts import TEXTS


def stream(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    return [*(detokenizer.push(i) for i in ids), detokenizer.finish()]


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Tokenizer:
    return Tokenizer(tiny)


@given(ids=st.lists(st.integers(-1, 600), max_size=120), skip=st.booleans())
def test_pieces_add_up_to_the_whole_for_any_tokens(
    tokenizer: Tokenizer, ids: list[int], skip: bool
) -> None:
    """Ids that are special or unknown, bytes that are no text: the same as decoding at once."""
    known = [i for i in ids if 0 <= i < tokenizer.vocab]
    pieces = stream(tokenizer.detokenizer(skip_special=skip), ids)
    assert "".join(pieces) == tokenizer.decode(known, skip_special=skip)


@given(text=st.text(max_size=60))
def test_no_character_is_ever_half_out(tokenizer: Tokenizer, text: str) -> None:
    text = text.replace(REPLACEMENT, "")
    pieces = stream(tokenizer.detokenizer(skip_special=False), tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)


def test_text_comes_as_soon_as_it_is_certain(tokenizer: Tokenizer) -> None:
    pieces = stream(tokenizer.detokenizer(), tokenizer.encode("a é"))
    assert pieces[0] == "a"
    assert pieces[-1] == ""


@given(ids=st.lists(st.integers(131, 258), min_size=1, max_size=200))
def test_a_run_of_stray_bytes_keeps_the_window_short(tokenizer: Tokenizer, ids: list[int]) -> None:
    longest = 0

    def decode(window: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(window))
        return tokenizer.decode(window)

    pieces = stream(Detokenizer(decode, lambda _: False), ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert longest <= WINDOW_MAX + 1


def leading_space_tokenizer() -> tokenizers.Tokenizer:
    """As sentencepiece models have it: the first space is stripped, unknown bytes are tokens."""
    words = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hello", "▁world", "ly", "▁"]
    made = tokenizers.Tokenizer(
        models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], byte_fallback=True)
    )
    made.add_special_tokens(["<s>"])
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


@given(
    words=st.lists(
        st.sampled_from(["<s>", "▁Hello", "▁world", "ly", "▁", "é", "你", "👋"]), max_size=30
    )
)
def test_leading_space_and_byte_tokens(words: list[str]) -> None:
    made = leading_space_tokenizer()
    ids: list[int] = []
    for word in words:
        own: int | None = made.token_to_id(word)
        spelt = [word] if own is not None else [f"<0x{byte:02X}>" for byte in word.encode()]
        ids += [int(made.token_to_id(token) or 0) for token in spelt]

    def decode(window: Sequence[int]) -> str:
        return str(made.decode(list(window), skip_special_tokens=True))

    pieces = stream(Detokenizer(decode, lambda token: token == 0), ids)
    assert "".join(pieces) == decode(ids)
    assert not any(REPLACEMENT in piece for piece in pieces)


@pytest.mark.model
def test_streams_of_smollm2(smollm2: Path) -> None:
    tokenizer = Tokenizer(smollm2)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        for skip in (True, False):
            pieces = stream(tokenizer.detokenizer(skip_special=skip), ids)
            assert "".join(pieces) == tokenizer.decode(ids, skip_special=skip)
