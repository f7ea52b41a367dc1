"""Several prompts or samples in one call: rooms, names, seeds, indices, sums, failures."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest, Overloaded, PeerLost
from pdcluster_worker.frontend.legs import Shape, rooms_of
from pdcluster_worker.wire.local import Failed, Submit
from tests.unit.frontend.fakes import LEG, FakeLink, answer, client, events

MAX = 2**63 - 1


def spelled(submit: Submit) -> list[Any]:
    """Answers with the prompt in capitals."""
    text = bytes(submit.input_ids[::4]).decode().upper()
    return list(answer(submit, text))


async def post(
    path: str, body: dict[str, Any], *, link: FakeLink, role: Role = Role.AGGREGATED
) -> Any:
    async with client(link, role) as http:
        response = await http.post(path, json=body)
        assert response.status_code == 200, response.text
        return events(response.text) if body.get("stream") else response.json()


def rooms(link: FakeLink) -> list[int]:
    return [submit.hop.room for submit in link.submitted if submit.hop is not None]


@pytest.mark.parametrize(
    ("given_rooms", "shape", "expected"),
    [
        ([5], Shape(1, 1), [5]),
        ([5], Shape(2, 2), [5, 6, 7, 8]),
        ([0], Shape(1, 2), [MAX, 1]),
        ([MAX], Shape(3, 1), [MAX, 1, 2]),
        ([5, 50], Shape(2, 1), [5, 50]),
        ([5, 50], Shape(2, 2), [5, 6, 50, 51]),
        ([9, 8, 7, 6], Shape(2, 2), [9, 8, 7, 6]),
        ([9, 0], Shape(1, 2), [9, MAX]),
    ],
)
def test_rooms(given_rooms: list[int], shape: Shape, expected: list[int]) -> None:
    assert rooms_of(given_rooms, shape=shape) == tuple(expected)


@pytest.mark.parametrize(
    ("given_rooms", "shape"),
    [
        ([], Shape(1, 1)),
        ([None], Shape(1, 1)),
        ([1, None], Shape(2, 1)),
        ([1, 2], Shape(1, 1)),
        ([1, 2], Shape(3, 1)),
        ([1, 1], Shape(2, 1)),
        ([1, 2], Shape(2, 2)),
        ([0, MAX], Shape(2, 1)),
    ],
)
def test_e86_rooms_that_would_be_shared_or_missing(
    given_rooms: list[int | None], shape: Shape
) -> None:
    with pytest.raises(BadRequest) as caught:
        rooms_of(given_rooms, shape=shape)
    assert caught.value.field == "bootstrap_room"


@given(st.integers(0, MAX), st.integers(1, 20), st.integers(1, 20))
def test_e86_one_room_makes_as_many_different_ones(room: int, prompts: int, samples: int) -> None:
    found = rooms_of([room], shape=Shape(prompts, samples))
    assert len(set(found)) == prompts * samples
    assert all(1 <= room <= MAX for room in found)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": ["a", "b"], "n": 2}),
        ("/v1/completions", {"prompt": [[97], [98]], "n": 2}),
        ("/generate", {"text": ["a", "b"], "sampling_params": {"n": 2}}),
        ("/generate", {"input_ids": [[97], [98]], "sampling_params": [{"n": 2}, {"n": 2}]}),
    ],
)
@pytest.mark.parametrize("room", [7, [7], [7, 70], [7, 8, 70, 71]])
async def test_e86_both_legs_derive_the_same_rooms(
    path: str, body: dict[str, Any], room: Any
) -> None:
    """Trigger: several samples or prompts in one call, with one room.
    Others: the copies shared the room on each leg.
    Here: both legs derive the same distinct rooms from the same body; what would clash is a 400.
    Bound: at once.
    """
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        link = FakeLink(lambda s: answer(s, "x"))
        await post(path, body | LEG | {"bootstrap_room": room}, link=link, role=role)
        assert [link.prompt(i) for i in range(4)] == [[97], [97], [98], [98]]
        found.append(rooms(link))
    assert found[0] == found[1] == ([7, 8, 9, 10] if room in (7, [7]) else [7, 8, 70, 71])


async def test_lists_of_hosts_and_ports() -> None:
    link = FakeLink()
    leg = {
        "bootstrap_host": ["h1", "h2"],
        "bootstrap_port": [None, 9000],
        "bootstrap_room": [1, 2],
    }
    await post("/generate", {"text": ["a", "b"], **leg}, link=link, role=Role.DECODE)
    hops = [submit.hop for submit in link.submitted]
    assert [(h.host, h.port, h.room) for h in hops if h] == [("h1", 8998, 1), ("h2", 9000, 2)]


async def test_samples_differ_and_repeat() -> None:
    link = FakeLink()
    body = {"prompt": ["a", "b"], "n": 2, "seed": 5}
    await post("/v1/completions", body, link=link)
    assert [submit.sampling.seed for submit in link.submitted] == [5, 6, 5, 6]
    await post("/v1/completions", body | {"seed": None}, link=link)
    assert len({submit.sampling.seed for submit in link.submitted[4:]}) == 4


async def test_completions_of_several_prompts() -> None:
    body = {"prompt": ["ab", "c"], "n": 2, "echo": True}
    found = await post("/v1/completions", body, link=FakeLink(spelled))
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in found["choices"]] == ["abAB", "abAB", "cC", "cC"]
    assert found["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 6,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


async def test_streamed_choices_have_their_index() -> None:
    body = {
        "prompt": ["ab", "c"],
        "stream": True,
        "echo": True,
        "stream_options": {"include_usage": True},
    }
    chunks = await post("/v1/completions", body, link=FakeLink(spelled))
    texts = {0: "", 1: ""}
    finished = []
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            finished.append(choice["index"])
    assert texts == {0: "abAB", 1: "cC"}
    assert sorted(finished) == [0, 1]
    assert chunks[-1]["usage"]["completion_tokens"] == 3


async def test_chat_samples() -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "n": 2}
    found = await post("/v1/chat/completions", body, link=FakeLink())
    assert [choice["message"]["content"] for choice in found["choices"]] == ["hello", "hello"]
    chunks = await post("/v1/chat/completions", body | {"stream": True}, link=FakeLink())
    roles = [c["choices"][0]["index"] for c in chunks if "role" in c["choices"][0]["delta"]]
    assert sorted(roles) == [0, 1]
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_generate_items() -> None:
    body = {
        "text": ["ab", "c"],
        "rid": ["r1", "r2"],
        "sampling_params": [{"max_new_tokens": 3}, {"max_new_tokens": 4}],
        "return_logprob": [True, False],
    }
    link = FakeLink(spelled)
    found = await post("/generate", body, link=link)
    assert [item["text"] for item in found] == ["AB", "C"]
    assert [item["meta_info"]["id"] for item in found] == ["r1", "r2"]
    assert ["output_token_logprobs" in item["meta_info"] for item in found] == [True, False]
    assert [submit.sampling.max_new_tokens for submit in link.submitted] == [3, 4]
    chunks = await post("/generate", body | {"stream": True}, link=FakeLink(spelled))
    assert {c["index"]: c["text"] for c in chunks} == {0: "AB", 1: "C"}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"text": "a", "rid": "r"}, ["r"]),
        ({"text": ["a"], "rid": "r"}, ["r"]),
        ({"text": ["a", "b"], "rid": "r"}, ["r-0", "r-1"]),
        ({"text": "a", "rid": "r", "sampling_params": {"n": 2}}, ["r-0", "r-1"]),
        ({"text": ["a", "b"], "rid": ["x", "y"], "sampling_params": {"n": 2}},
         ["x-0", "x-1", "y-0", "y-1"]),
    ],
)  # fmt: skip
async def test_names(body: dict[str, Any], names: list[str]) -> None:
    link = FakeLink()
    await post("/generate", body, link=link)
    assert [submit.rid for submit in link.submitted] == names


def second_fails(submit: Submit) -> list[Any]:
    if submit.rid.endswith("-1"):
        return [Failed(rid=submit.rid, kind=PeerLost.kind, message="gone")]
    return answer(submit, "hello")[:2] if submit.rid.endswith("-2") else answer(submit, "hello")


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
async def test_one_failure_is_the_answer_of_a_call_and_ends_the_others(path: str) -> None:
    link = FakeLink(second_fails)
    name = "text" if path == "/generate" else "prompt"
    async with client(link) as http:
        response = await http.post(path, json={name: ["a", "b", "c"], "rid": "r"})
    assert response.status_code == 503
    assert "gone" in response.text
    assert [rid for rid, _, _ in link.aborted] == ["r-2"]


async def test_one_failure_in_a_stream() -> None:
    def script(submit: Submit) -> list[Any]:
        if submit.rid.endswith("-1"):
            failed = Failed(rid=submit.rid, kind=PeerLost.kind, message="gone")
            return [*answer(submit, "hello")[:2], failed]
        return answer(submit, "hello")

    body = {"text": ["a", "b"], "rid": "r", "stream": True}
    chunks = await post("/generate", body, link=FakeLink(script))
    (failure,) = [chunk for chunk in chunks if chunk.get("object") == "error"]
    assert (failure["index"], failure["code"]) == (1, 503)
    assert [c["text"] for c in chunks if c["index"] == 0][-1] == "hello"
    body = {"prompt": ["a", "b"], "rid": "r", "stream": True}
    chunks = await post("/v1/completions", body, link=FakeLink(script))
    assert chunks[-1]["error"]["message"] == "gone"


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_what_is_refused_here_ends_the_other_legs(role: Role) -> None:
    class FullLink(FakeLink):
        def open(self, request: Submit) -> Any:
            if self.submitted:
                raise Overloaded("full")
            return super().open(request)

    link = FullLink(lambda s: answer(s, "hello")[:1])
    async with client(link, role) as http:
        response = await http.post("/v1/completions", json={"prompt": ["a", "b", "c"], **LEG})
    assert response.status_code == 503
    assert [(hop.room, error.kind) for hop, error in link.declined] == [
        (8, "overloaded"),
        (9, "overloaded"),
    ]
    assert len(link.aborted) == 1


async def test_headers_override_fields() -> None:
    link = FakeLink()
    headers = {
        "X-Override-Rid": "h",
        "X-Override-Bootstrap-Host": "10.1.1.1",
        "X-Override-Bootstrap-Port": "77",
        "X-Override-Bootstrap-Room": "88",
        "X-Override-Priority": "1",
        "X-Override-Routed-Dp-Rank": "0",
        "X-Override-Conversation-Id": "c",
    }
    async with client(link, Role.DECODE) as http:
        body = {"text": "a", "rid": "b", **LEG}
        assert (await http.post("/generate", json=body, headers=headers)).status_code == 200
        for name, value in (("Room", "x"), ("Room", "-1"), ("Port", "70000"), ("Host", "a b")):
            bad = {f"x-override-bootstrap-{name}": value}
            response = await http.post("/generate", json=body, headers=bad)
            assert response.status_code == 400
            assert name.lower() in response.json()["param"]
    (submit,) = link.submitted
    assert submit.hop is not None
    assert (submit.rid, submit.hop.host, submit.hop.port, submit.hop.room) == (
        "h", "10.1.1.1", 77, 88,
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
async def test_penalties_and_bias_reach_the_scheduler(path: str) -> None:
    link = FakeLink()
    sampling = {
        "presence_penalty": 0.5,
        "frequency_penalty": -1,
        "repetition_penalty": 1.2,
        "logit_bias": {"5": -100, "3": 1.5},
    }
    body: dict[str, Any] = {"text": "x", "sampling_params": sampling}
    if path != "/generate":
        body = {"prompt": "x", "messages": [{"role": "user", "content": "x"}], **sampling}
    await post(path, body, link=link)
    found = link.submitted[0].sampling
    assert (found.presence_penalty, found.frequency_penalty) == (0.5, -1.0)
    assert found.repetition_penalty == 1.2
    assert found.logit_bias == ((3, 1.5), (5, -100.0))
