"""Logprobs of the prompt's own tokens (F18)."""

from typing import Any

import msgspec
import pytest

from pdcluster_api.names import Role
from pdcluster_worker.wire.local import Submit, TopLogprob
from tests.unit.frontend.fakes import LEG, FakeLink, answer, client, events


def scored(submit: Submit) -> list[Any]:
    """Tokens of the prompt have -0.25, -1.25, ..., the answer is "ok"."""
    first, *others = answer(submit, "ok")
    start = submit.sampling.input_logprobs_from
    if start is None:
        return [first, *others]
    count = len(submit.input_ids) // 4 - start - 1
    best = range(submit.sampling.logprobs or 0)
    return [
        msgspec.structs.replace(
            first,
            input_logprobs=tuple(-0.25 - i for i in range(count)),
            input_top=tuple(
                tuple(TopLogprob(65 + j, -0.1 - j) for j in best) for _ in range(count)
            ),
        ),
        *others,
    ]


async def post(path: str, body: dict[str, Any], *, role: Role = Role.AGGREGATED) -> Any:
    async with client(FakeLink(scored), role) as http:
        return await http.post(path, json=body)


async def generate(role: Role = Role.AGGREGATED, **body: Any) -> Any:
    ask = {"text": "abcd", "return_logprob": True, **body}
    response = await post("/generate", ask, role=role)
    assert response.status_code == 200, response.text
    return response.json()["meta_info"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [[None, 97, None], [-0.25, 98, None], [-1.25, 99, None], [-2.25, 100, None]]),
        (2, [[None, 99, None], [-0.25, 100, None]]),
        (3, [[None, 100, None]]),
        (-1, []),
    ],
)
@pytest.mark.parametrize("role", [Role.AGGREGATED, Role.PREFILL])
async def test_generate(role: Role, start: int, expected: list[Any]) -> None:
    meta = await generate(role, logprob_start_len=start, **LEG)
    assert meta["input_token_logprobs"] == expected
    assert len(meta["output_token_logprobs"]) == 2


async def test_top_of_the_prompt() -> None:
    meta = await generate(logprob_start_len=2, top_logprobs_num=2, return_text_in_logprobs=True)
    assert meta["input_top_logprobs"] == [None, [[-0.1, 65, "A"], [-1.1, 66, "B"]]]
    assert len(meta["output_top_logprobs"]) == 2


async def test_decode_leaves_the_prompt_to_prefill() -> None:
    meta = await generate(Role.DECODE, logprob_start_len=0, top_logprobs_num=1, **LEG)
    assert meta["input_token_logprobs"] == meta["input_top_logprobs"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"logprob_start_len": 4}, "logprob_start_len"),
        ({"logprob_start_len": -2}, "logprob_start_len"),
        ({"text": "x" * 9000, "logprob_start_len": 0, "top_logprobs_num": 128}, "top_logprobs_num"),
    ],
)
async def test_refused(change: dict[str, Any], field: str) -> None:
    response = await post("/generate", {"text": "abcd", "return_logprob": True, **change})
    assert (response.status_code, response.json()["param"]) == (400, field)


async def test_completion_that_echoes() -> None:
    body: dict[str, Any] = {"prompt": "ab", "echo": True, "logprobs": 1}
    (choice,) = (await post("/v1/completions", body)).json()["choices"]
    assert choice["text"] == "abok"
    assert choice["logprobs"] == {
        "text_offset": [0, 1, 2, 3],
        "token_logprobs": [None, -0.25, -0.5, -0.5],
        "tokens": ["a", "b", "o", "k"],
        "top_logprobs": [None, {"A": -0.1}, {"o": -0.5}, {"k": -0.5}],
    }
    chunks = events((await post("/v1/completions", body | {"stream": True})).text)
    parts = [chunk["choices"][0]["logprobs"]["token_logprobs"] for chunk in chunks]
    assert parts == [[None, -0.25], [-0.5], [-0.5]]


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_no_router_could_put_an_echo_together(role: Role) -> None:
    body = {"prompt": "ab", "echo": True, "logprobs": 1, **LEG}
    response = await post("/v1/completions", body, role=role)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "echo")
