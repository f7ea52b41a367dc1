"""The models' tokenizer is what the frontend asks for."""

from pathlib import Path

import httpx
import msgspec
import pytest

from pdcluster_worker.frontend.app import create_app
from pdcluster_worker.frontend.link import Message
from pdcluster_worker.frontend.text import Detokenizer, Tokenizer
from pdcluster_worker.models.source import prepare
from pdcluster_worker.models.tokenizer import Tokenizer as ModelTokenizer
from pdcluster_worker.wire.local import Submit, Tokens
from tests.unit.frontend.fakes import READY, FakeLink, frontend


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    cache: Path = tmp_path_factory.mktemp("cache")
    return ModelTokenizer(prepare("tiny://llama?seed=0", cache))


def test_it_fits(tokenizer: ModelTokenizer) -> None:
    text: Tokenizer = tokenizer
    parts: Detokenizer = text.detokenizer()
    ids = text.encode("héllo 😀 world")
    assert "".join([*map(parts.push, ids), parts.finish()]) == text.decode(ids)
    assert text.apply_chat_template([{"role": "user", "content": "hi"}])


async def test_a_chat_with_logprobs(tokenizer: ModelTokenizer) -> None:
    text = "héllo 😀"
    ids = tuple(tokenizer.encode(text, add_special=False))

    def script(submit: Submit) -> list[Message]:
        logprobs = (-1.0,) * len(ids)
        return [Tokens(rid=submit.rid, ids=ids, logprobs=logprobs, finish="length")]

    link = FakeLink(script)
    link.ready = msgspec.structs.replace(READY, vocab=tokenizer.vocab)
    state = frontend(link)
    state.tokenizer = tokenizer
    transport = httpx.ASGITransport(app=create_app(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as http:
        body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True}
        choice = (await http.post("/v1/chat/completions", json=body)).json()["choices"][0]
    assert choice["message"]["content"] == text
    parts = [bytes(entry["bytes"]) for entry in choice["logprobs"]["content"]]
    assert b"".join(parts).decode() == text
