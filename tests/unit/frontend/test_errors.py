"""Refusals: status, shape, and the field by name."""

from typing import Any

import pytest

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import EngineError, PeerLost, PromptTooLong, by_kind
from pdcluster_worker.frontend.errors import Api, error_body
from pdcluster_worker.wire.local import Failed
from tests.unit.frontend.fakes import LEG, FakeLink, client

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "x"},
    "/generate": {"text": "x"},
}


async def post(
    path: str,
    body: Any,
    *,
    link: FakeLink | None = None,
    role: Role = Role.AGGREGATED,
    **limits: Any,
) -> Any:
    async with client(link or FakeLink(), role, **limits) as http:
        if isinstance(body, bytes):
            return await http.post(path, content=body)
        return await http.post(path, json=body)


def param(response: Any) -> Any:
    body = response.json()
    return body["param"] if "object" in body else body["error"]["param"]


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/generate", {"text": None, "input_ids": []}, "input_ids"),
        ("/generate", {"text": None, "input_ids": [[]]}, "input_ids"),
        ("/generate", {"text": []}, "text"),
        ("/generate", {"image_data": ["x"]}, "image_data"),
        ("/generate", {"sampling_params": {"regex": "a"}}, "sampling_params.regex"),
        ("/v1/completions", {"ebnf": "root"}, "ebnf"),
        ("/v1/chat/completions", {"messages": "x"}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": 1}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "strange"}]}, "messages"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
        ),
        ("/v1/chat/completions", {"temperature": -1}, "temperature"),
        ("/v1/chat/completions", {"temperature": "hot"}, "temperature"),
        ("/v1/chat/completions", {"temperature": True}, "temperature"),
        ("/v1/chat/completions", {"top_p": 0}, "top_p"),
        ("/v1/chat/completions", {"top_k": -2}, "top_k"),
        ("/v1/chat/completions", {"min_p": 1.1}, "min_p"),
        ("/v1/chat/completions", {"max_tokens": 0}, "max_tokens"),
        ("/v1/chat/completions", {"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ("/v1/chat/completions", {"max_tokens": 1, "min_tokens": 2}, "min_tokens"),
        ("/v1/chat/completions", {"stop": [""]}, "stop"),
        ("/v1/chat/completions", {"stop": [1]}, "stop"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 129}, "top_logprobs"),
        ("/v1/chat/completions", {"top_logprobs": 1}, "top_logprobs"),
        ("/v1/chat/completions", {"n": 0}, "n"),
        ("/v1/chat/completions", {"n": 129}, "n"),
        ("/v1/completions", {"prompt": ["a"] * 256, "n": 5}, "n"),
        ("/v1/completions", {"prompt": ["a"] * 257}, "prompt"),
        ("/v1/chat/completions", {"presence_penalty": 2.1}, "presence_penalty"),
        ("/v1/chat/completions", {"frequency_penalty": "x"}, "frequency_penalty"),
        ("/v1/chat/completions", {"repetition_penalty": 0}, "repetition_penalty"),
        ("/v1/chat/completions", {"logit_bias": {"a": 1}}, "logit_bias"),
        ("/v1/chat/completions", {"logit_bias": {"1": 101}}, "logit_bias"),
        ("/v1/chat/completions", {"logit_bias": {"-1": 1}}, "logit_bias"),
        ("/v1/chat/completions", {"logit_bias": {"260": 1}}, "logit_bias"),
        ("/v1/chat/completions", {"logit_bias": [1]}, "logit_bias"),
        ("/v1/chat/completions", {"routed_dp_rank": 1}, "routed_dp_rank"),
        ("/v1/chat/completions", {"n": True}, "n"),
        ("/v1/chat/completions", {"stream": "yes"}, "stream"),
        ("/v1/chat/completions", {"stream_options": 1}, "stream_options"),
        ("/v1/chat/completions", {"tools": [{}]}, "tools"),
        (
            "/v1/chat/completions",
            {"response_format": {"type": "json_object"}},
            "response_format",
        ),
        ("/v1/completions", {"prompt": None}, "prompt"),
        ("/v1/completions", {"prompt": ""}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": ["a", ""]}, "prompt"),
        ("/v1/completions", {"prompt": ["a", [1]]}, "prompt"),
        ("/v1/completions", {"prompt": [1, "a"]}, "prompt"),
        ("/v1/completions", {"prompt": [-1]}, "prompt"),
        ("/v1/completions", {"prompt": [999]}, "prompt"),
        ("/v1/completions", {"logprobs": 129}, "logprobs"),
        ("/generate", {"text": None}, "text"),
        ("/generate", {"text": 5}, "text"),
        ("/generate", {"text": None, "input_ids": [999]}, "input_ids"),
        ("/generate", {"sampling_params": 3}, "sampling_params"),
        ("/generate", {"sampling_params": {"top_p": 2}}, "sampling_params.top_p"),
        ("/generate", {"top_logprobs_num": 129}, "top_logprobs_num"),
        ("/generate", {"rid": ""}, "rid"),
        ("/generate", {"text": ["a", "b"], "rid": ["x"] * 3}, "rid"),
        (
            "/generate",
            {"text": ["a", "b"], "sampling_params": [{}, {"top_p": 2}]},
            "sampling_params.top_p",
        ),
        ("/generate", {"text": ["a", "b"], "sampling_params": [{}, {"n": 2}]}, "sampling_params.n"),
    ],
)
async def test_bad_fields(path: str, change: dict[str, Any], field: str) -> None:
    response = await post(path, PATHS[path] | change)
    assert response.status_code == 400, response.text
    assert param(response) == field


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b'"x"', b"\xff", b"[" * 100_000, b'{"prompt":"\\ud800"}']
)
async def test_malformed_bodies(path: str, body: bytes) -> None:
    assert (await post(path, body)).status_code == 400


@pytest.mark.parametrize("path", PATHS)
async def test_too_large(path: str) -> None:
    response = await post(path, b"x" * 2000, requestBytesMax=1024)
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bootstrap_room": None}, "bootstrap_room"),
        ({"bootstrap_room": -1}, "bootstrap_room"),
        ({"bootstrap_room": 2**63}, "bootstrap_room"),
        ({"bootstrap_room": 2**70}, "bootstrap_room"),
        ({"bootstrap_room": 1.5}, "bootstrap_room"),
        ({"bootstrap_room": "1"}, "bootstrap_room"),
        ({"bootstrap_room": True}, "bootstrap_room"),
        ({"bootstrap_room": [1, 2]}, "bootstrap_room"),
        ({"bootstrap_room": []}, "bootstrap_room"),
        ({"bootstrap_room": [None]}, "bootstrap_room"),
        ({"bootstrap_host": None}, "bootstrap_host"),
        ({"bootstrap_host": "a b"}, "bootstrap_host"),
        ({"bootstrap_host": "h/../x"}, "bootstrap_host"),
        ({"bootstrap_port": 0}, "bootstrap_port"),
        ({"bootstrap_port": 65536}, "bootstrap_port"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_e72_a_room_out_of_range_and_other_bad_legs_are_named(
    path: str, change: dict[str, Any], field: str
) -> None:
    """Trigger: a room that is negative, too large, no integer or missing; or room 0.
    Others: 0 stood for an unwritten row; the rest raised in the scheduler.
    Here: what is no room is a 400 that names the field; 0 is taken as 2^63-1 on both legs.
    Bound: at once.
    """
    response = await post(path, PATHS[path] | LEG | change, role=Role.DECODE)
    assert response.status_code == 400, response.text
    assert param(response) == field


async def test_prefill_needs_only_the_room() -> None:
    link = FakeLink()
    response = await post(
        "/generate", {"text": "x", "bootstrap_room": 5}, link=link, role=Role.PREFILL
    )
    assert response.status_code == 200
    hop = link.submitted[0].hop
    assert hop is not None
    assert (hop.host, hop.port, hop.room) == ("127.0.0.1", 8998, 5)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x]])
@pytest.mark.parametrize("port", [None, 9000])
@pytest.mark.parametrize(("room", "taken"), [(0, 2**63 - 1), (1, 1), (2**63 - 1, 2**63 - 1)])
async def test_e72_every_room_in_range_is_taken(
    wrap: Any, port: int | None, room: int, taken: int
) -> None:
    link = FakeLink()
    leg = {
        "bootstrap_host": wrap("10.0.0.9"),
        "bootstrap_port": wrap(port),
        "bootstrap_room": wrap(room),
    }
    await post("/v1/completions", {"prompt": "x"} | leg, link=link, role=Role.DECODE)
    hop = link.submitted[0].hop
    assert hop is not None
    assert (hop.host, hop.port, hop.room) == ("10.0.0.9", port or 8998, taken)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [PeerLost, EngineError, PromptTooLong])
async def test_failures_before_the_first_token_have_their_status(
    path: str, stream: bool, kind: Any
) -> None:
    def script(submit: Any) -> list[Any]:
        return [Failed(rid=submit.rid, kind=kind.kind, message="why", field="messages")]

    response = await post(path, PATHS[path] | {"stream": stream}, link=FakeLink(script))
    assert response.status_code == kind.code
    assert "why" in response.text
    assert ("retry-after" in response.headers) is (kind.code == 503)
    if kind is PromptTooLong:
        assert param(response) == "messages"


@pytest.mark.parametrize("path", [*PATHS, "/health", "/ready"])
async def test_not_ready(path: str) -> None:
    link = FakeLink()
    link.ready = None
    async with client(link) as http:
        response = await (http.post(path, json=PATHS[path]) if path in PATHS else http.get(path))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


async def test_openai_error_shape() -> None:
    response = await post("/v1/completions", {"prompt": "x", "top_p": 5})
    assert response.json() == {
        "error": {
            "message": "top_p: 5 is not allowed, must be a number > 0 and <= 1",
            "type": "invalid_request_error",
            "param": "top_p",
            "code": "invalid_request_error",
        }
    }


async def test_wrong_method() -> None:
    async with client(FakeLink()) as http:
        assert (await http.get("/v1/completions")).status_code == 405
        assert (await http.post("/health")).status_code == 405
        assert (await http.get("/nothing")).status_code == 404


@pytest.mark.parametrize("kind", by_kind())
@pytest.mark.parametrize("api", Api)
def test_every_error_has_a_body(kind: str, api: Api) -> None:
    body = error_body(by_kind()[kind]("text"), api)
    assert "text" in str(body)
