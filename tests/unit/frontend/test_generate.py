"""/generate, in SGLang's shape."""

from typing import Any

import pytest

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import Aborted, PeerLost
from pdcluster_worker.wire.local import Failed, Submit
from tests.unit.frontend.fakes import EOS, LEG, FakeLink, answer, client, events


async def generate(link: FakeLink, role: Role = Role.AGGREGATED, **body: Any) -> Any:
    async with client(link, role) as http:
        response = await http.post("/generate", json={"text": "hi", **body})
        assert response.status_code == 200, response.text
        return events(response.text) if body.get("stream") else response.json()


async def test_plain() -> None:
    link = FakeLink(lambda s: answer(s, "hello", stop=True))
    body = await generate(link, rid="r-1", return_handoff=True)
    assert body["meta_info"].pop("e2e_latency") >= 0
    assert body == {
        "text": "hello",
        "output_ids": [*b"hello", EOS],
        "meta_info": {
            "id": "r-1",
            "finish_reason": {"type": "stop", "matched": EOS},
            "prompt_tokens": 2,
            "completion_tokens": 6,
            "cached_tokens": 2,
            "weight_version": "default",
        },
        "pdcluster": {
            "handoff": {
                "pages": 3,
                "bytes": 4096,
                "chunks": 1,
                "descriptors": 2,
                "seconds": 0.001,
                "total_seconds": 0.004,
            }
        },
    }
    assert link.submitted[0].sampling.max_new_tokens == 128


async def test_stream_is_cumulative() -> None:
    chunks = await generate(FakeLink(), stream=True)
    assert [chunk["text"] for chunk in chunks] == ["h", "he", "hel", "hell", "hello"]
    reasons = [chunk["meta_info"]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * 4 + [{"type": "length", "length": 5}]
    assert [len(chunk["output_ids"]) for chunk in chunks] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("body", "listed"),
    [
        ({"text": "hi"}, False),
        ({"text": ["hi"]}, True),
        ({"text": None, "input_ids": [104, 105]}, False),
        ({"text": None, "input_ids": [[104, 105]]}, True),
    ],
)
async def test_prompt_forms(body: dict[str, Any], listed: bool) -> None:
    link = FakeLink()
    result = await generate(link, **body)
    assert link.prompt() == [104, 105]
    assert isinstance(result, list) is listed


async def test_logprobs() -> None:
    body = await generate(
        FakeLink(), return_logprob=True, top_logprobs_num=1, return_text_in_logprobs=True
    )
    meta = body["meta_info"]
    assert meta["output_token_logprobs"][0] == [-0.5, 104, "h"]
    assert meta["output_top_logprobs"][0] == [[-0.5, 104, "h"]]
    assert len(meta["output_token_logprobs"]) == meta["completion_tokens"] == 5
    assert meta["input_token_logprobs"] == []
    plain = (await generate(FakeLink(), return_logprob=True))["meta_info"]
    assert plain["output_token_logprobs"][0] == [-0.5, 104, None]


@pytest.mark.parametrize("listed", [False, True])
async def test_sampling_params(listed: bool) -> None:
    link = FakeLink()
    params = {
        "max_new_tokens": 7,
        "min_new_tokens": 1,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 0,
        "min_p": 0.1,
        "seed": 5,
        "stop_token_ids": [3],
        "ignore_eos": True,
    }
    await generate(link, sampling_params=[params] if listed else params)
    sampling = link.submitted[0].sampling
    assert sampling.max_new_tokens == 7
    assert sampling.min_new_tokens == 1
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.0, 0.5, 0.1)
    assert (sampling.top_k, sampling.seed) == (-1, 5)
    assert sampling.stop_token_ids == (3,)
    assert sampling.ignore_eos


async def test_stop_string() -> None:
    link = FakeLink(lambda s: answer(s, "abcdef"))
    body = await generate(link, sampling_params={"stop": ["xx", "cd"]}, rid="r")
    assert body["text"] == "ab"
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": "cd"}
    assert body["meta_info"]["completion_tokens"] == 4
    assert link.aborted == [("r", "stop string", True)]
    kept = await generate(
        FakeLink(lambda s: answer(s, "abcdef", step=6)),
        sampling_params={"stop": "cd", "no_stop_trim": True},
    )
    assert kept["text"] == "abcd"


@pytest.mark.parametrize(("least", "text"), [(3, "ab"), (4, "abcdab"), (5, "abcdab")])
async def test_a_stop_string_counts_from_the_shortest_answer_on(least: int, text: str) -> None:
    link = FakeLink(lambda s: answer(s, "abcdabcd"))
    body = await generate(link, sampling_params={"stop": "cd", "min_new_tokens": least})
    assert body["text"] == text


async def test_stop_string_in_the_last_message_needs_no_abort() -> None:
    link = FakeLink(lambda s: answer(s, "abcd", step=4))
    body = await generate(link, sampling_params={"stop": "cd"})
    assert body["text"] == "ab"
    assert link.aborted == []


async def test_prefill_says_length_zero() -> None:
    body = await generate(FakeLink(lambda s: answer(s, "h")), role=Role.PREFILL, **LEG)
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert body["meta_info"]["completion_tokens"] == 1


async def test_an_abort_is_an_answer() -> None:
    def script(submit: Submit) -> list[Any]:
        begun = answer(submit, "hello")[:2]
        return [*begun, Failed(rid=submit.rid, kind=Aborted.kind, message="asked for")]

    body = await generate(FakeLink(script))
    assert body["text"] == "he"
    assert body["meta_info"]["finish_reason"]["type"] == "abort"


async def test_failure_in_the_middle_of_a_stream() -> None:
    def script(submit: Submit) -> list[Any]:
        begun = answer(submit, "hello")[:2]
        return [*begun, Failed(rid=submit.rid, kind=PeerLost.kind, message="gone")]

    *_, last = await generate(FakeLink(script), stream=True)
    assert last["object"] == "error"
    assert (last["message"], last["code"]) == ("gone", 503)
    assert last["error"]["message"] == "gone"
