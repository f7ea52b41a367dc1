"""OpenAI's shapes, field by field."""

from typing import Any

import pytest

from pdcluster_api.names import Role
from tests.unit.frontend.fakes import LEG, FakeLink, answer, client, events

MESSAGES = [{"role": "user", "content": "hi"}]


async def post(
    link: FakeLink, path: str, body: dict[str, Any], role: Role = Role.AGGREGATED
) -> Any:
    async with client(link, role) as http:
        response = await http.post(path, json=body)
        assert response.status_code == 200, response.text
        return events(response.text) if body.get("stream") else response.json()


async def chat(link: FakeLink, **body: Any) -> Any:
    return await post(link, "/v1/chat/completions", {"messages": MESSAGES, **body})


async def complete(link: FakeLink, **body: Any) -> Any:
    return await post(link, "/v1/completions", {"prompt": "hi", **body})


async def test_chat() -> None:
    body = await chat(FakeLink(lambda s: answer(s, "hello", stop=True)), model="x")
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 6,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


async def test_chat_stream() -> None:
    chunks = await chat(FakeLink(lambda s: answer(s, "hey", stop=True)), stream=True)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[1:] == [{"content": "h"}, {"content": "e"}, {"content": "y"}, {}]
    finish = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finish == [None, None, None, None, "stop"]


@pytest.mark.parametrize("path", ["chat", "complete"])
async def test_stream_with_usage(path: str) -> None:
    ask = chat if path == "chat" else complete
    chunks = await ask(
        FakeLink(), stream=True, stream_options={"include_usage": True}, return_handoff=True
    )
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 5
    assert [index for index, c in enumerate(chunks) if "pdcluster" in c] == [len(chunks) - 1]


async def test_handoff_when_asked() -> None:
    body = await chat(FakeLink(), return_handoff=True)
    assert body["pdcluster"]["handoff"]["pages"] == 3
    chunks = await chat(FakeLink(), return_handoff=True, stream=True)
    assert chunks[-1]["pdcluster"]["handoff"]["bytes"] == 4096


async def test_completion_and_its_default_length() -> None:
    link = FakeLink()
    body = await complete(link)
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"index": 0, "text": "hello", "logprobs": None, "finish_reason": "length"}
    ]
    assert link.submitted[0].sampling.max_new_tokens == 16


@pytest.mark.parametrize("prompt", [[104, 105], [[104, 105]], ["hi"], "hi"])
async def test_prompt_forms(prompt: object) -> None:
    link = FakeLink()
    await complete(link, prompt=prompt)
    assert link.prompt() == [104, 105]


async def test_content_parts_and_null_content() -> None:
    link = FakeLink()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    await post(link, "/v1/chat/completions", {"messages": messages})
    assert bytes(link.prompt()) == b"user: ab\nassistant: \n"


async def test_chat_logprobs() -> None:
    body = await chat(FakeLink(lambda s: answer(s, "hé")), logprobs=True, top_logprobs=2)
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"] == 3
    assert content[0] == {
        "token": "h",
        "logprob": -0.5,
        "bytes": [104],
        "top_logprobs": [
            {"token": "h", "logprob": -0.5, "bytes": [104]},
            {"token": "i", "logprob": -1.5, "bytes": [105]},
        ],
    }
    chunks = await chat(FakeLink(lambda s: answer(s, "hé")), logprobs=True, stream=True)
    seen = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert sum(len(logprobs["content"]) for logprobs in seen) == 3


async def test_completion_logprobs() -> None:
    body = await complete(FakeLink(), logprobs=1)
    assert body["choices"][0]["logprobs"] == {
        "text_offset": [0, 1, 2, 3, 4],
        "token_logprobs": [-0.5] * 5,
        "tokens": list("hello"),
        "top_logprobs": [{letter: -0.5} for letter in "hello"],
    }
    chunks = await complete(FakeLink(), logprobs=0, stream=True)
    assert [c["choices"][0]["logprobs"]["text_offset"] for c in chunks] == [[0], [1], [2], [3], [4]]


async def test_nulls_and_unknown_fields_and_router_defaults() -> None:
    link = FakeLink()
    await chat(
        link,
        model=None,
        log_metrics=True,
        background=False,
        temperature=None,
        n=1,
        stop=None,
        logit_bias={},
        tools=None,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        stream_options=None,
        response_format={"type": "text"},
    )
    assert link.submitted[0].sampling.temperature == 1.0


async def test_length_defaults_to_what_is_left() -> None:
    link = FakeLink()
    await chat(link)
    assert link.submitted[0].sampling.max_new_tokens == 1000 - 9
    await chat(link, max_completion_tokens=3, max_tokens=5)
    assert link.submitted[1].sampling.max_new_tokens == 3


async def test_prefill_answers_one_token() -> None:
    link = FakeLink(lambda s: answer(s, "h"))
    body = await post(
        link, "/v1/completions", {"prompt": "x", "stop": "h", **LEG}, role=Role.PREFILL
    )
    assert body["choices"][0]["finish_reason"] == "length"
    assert link.aborted == []


async def test_characters_are_never_cut() -> None:
    chunks = await chat(FakeLink(lambda s: answer(s, "aé😀z")), stream=True)
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(texts) == "aé😀z"
    assert "�" not in "".join(texts)


async def test_a_cut_character_at_the_end_is_replaced() -> None:
    body = await complete(FakeLink(lambda s: answer(s, "é".encode()[:1])))
    assert body["choices"][0]["text"] == "�"
