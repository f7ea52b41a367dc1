"""Probe, load, cache, abort, tokens: what is asked of a worker beside generation."""

import asyncio
from typing import Any

import httpx
import pytest

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import EngineError
from pdcluster_worker.frontend import control
from pdcluster_worker.wire.local import FAKE_HOST, Failed, Submit
from tests.unit.frontend.fakes import STATUS, FakeLink, answer, client


class IdleLink(FakeLink):
    async def status(self, timeout_s: float) -> Any:
        return STATUS.__class__(**{f: getattr(STATUS, f) for f in STATUS.__struct_fields__
                                   if f != "stages"}, stages={})  # fmt: skip


@pytest.mark.parametrize("role", Role)
async def test_a_probe_has_no_other_leg_and_leaves_nothing(role: Role) -> None:
    link = FakeLink(lambda s: answer(s, "x"))
    async with client(link, role) as http:
        assert (await http.get("/health_generate")).status_code == 200
    (probe,) = link.submitted
    assert probe.hop is not None
    assert probe.hop.host == FAKE_HOST
    assert probe.rid.startswith("HEALTH_CHECK")
    assert link.declined == []


async def test_a_probe_without_a_token_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PROBE_TIMEOUT_S", 0.01)
    link = FakeLink(lambda s: [])
    async with client(link) as http:
        assert (await http.get("/health_generate")).status_code == 503
    assert link.aborted[0][0] == link.submitted[0].rid


async def test_a_probe_tells_that_the_engine_is_broken() -> None:
    def script(submit: Submit) -> list[Any]:
        return [Failed(rid=submit.rid, kind=EngineError.kind, message="no")]

    async with client(FakeLink(script)) as http:
        assert (await http.get("/health_generate")).status_code == 500


async def test_flush_cache() -> None:
    async with client(FakeLink()) as http:
        assert (await http.post("/flush_cache")).status_code == 400
        refused = await http.get("/flush_cache", params={"timeout": "x"})
        assert (refused.status_code, refused.json()["param"]) == (400, "timeout")
        assert (await http.get("/flush_cache", params={"timeout": "0.06"})).status_code == 400
    async with client(IdleLink()) as http:
        assert (await http.post("/flush_cache")).status_code == 200


async def test_get_load() -> None:
    async with client(FakeLink()) as http:
        (load,) = (await http.get("/get_load")).json()
    assert load == {"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 64}


@pytest.mark.parametrize(
    ("include", "present"),
    [
        (None, {"disaggregation", "queues", "memory", "pdcluster"}),
        ("all", {"disaggregation", "queues", "memory", "pdcluster"}),
        ("core", set()),
        ("core,disagg,queues", {"disaggregation", "queues"}),
        ("queues, spec", {"queues"}),
        ("pdcluster", {"pdcluster"}),
    ],
)
async def test_parts_of_loads(include: str | None, present: set[str]) -> None:
    async with client(FakeLink()) as http:
        body = (await http.get("/v1/loads", params={"include": include} if include else {})).json()
    parts = {"disaggregation", "queues", "memory", "pdcluster"}
    assert parts & (set(body) | set(body["loads"][0])) == present
    assert body["loads"][0]["num_running_reqs"] == 3


async def test_an_unknown_part_is_named() -> None:
    async with client(FakeLink()) as http:
        response = await http.get("/v1/loads", params={"include": "core,nothing"})
    assert (response.status_code, response.json()["param"]) == (400, "include")
    assert "nothing" in response.text


async def running(http: httpx.AsyncClient, link: FakeLink, *rids: str) -> list[Any]:
    """Requests that have two tokens and wait for more."""
    tasks = []
    for rid in rids:
        body = {"text": "x", "rid": rid}
        tasks.append(asyncio.create_task(http.post("/generate", json=body)))
    while len(link.submitted) < len(rids):
        await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ({"rid": "req1"}, ["req1"]),
        ({"rid": "req1", "prefix": True}, ["req1", "req10"]),
        ({"rid": "re"}, []),
        ({"abort_all": True}, ["req1", "req10", "other"]),
        ({"rid": "other", "abort_message": "too slow"}, ["other"]),
    ],
)
async def test_abort(body: dict[str, Any], ended: list[str]) -> None:
    link = FakeLink(lambda s: answer(s, "hello")[:2])
    async with client(link) as http:
        tasks = dict(
            zip(rids := ["req1", "req10", "other"], await running(http, link, *rids), strict=True)
        )
        for _ in range(20):
            await asyncio.sleep(0)
        response = await http.post("/abort_request", json=body)
        assert response.json() == {"aborted": len(ended)}
        for rid in ended:
            response = await tasks.pop(rid)
            assert response.status_code == 200
            finish = response.json()["meta_info"]["finish_reason"]
            assert finish["type"] == "abort"
            assert finish["message"] == body.get("abort_message", "the request was aborted")
            assert response.json()["text"] == "he"
        assert [rid for rid, _, _ in link.aborted] == ended or set(ended) == {
            rid for rid, _, _ in link.aborted
        }
        await http.post("/abort_request", json={"abort_all": True})
        for task in tasks.values():
            await task


async def test_the_name_of_a_call_means_all_its_samples() -> None:
    link = FakeLink(lambda s: answer(s, "hello")[:1])
    async with client(link) as http:
        body = {"messages": [{"role": "user", "content": "x"}], "n": 3, "rid": "call"}
        task = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        while len(link.submitted) < 3:
            await asyncio.sleep(0)
        response = await http.post("/abort_request", json={"rid": "call"})
        assert response.json() == {"aborted": 3}
        choices = (await task).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["abort"] * 3


async def test_abort_needs_a_name() -> None:
    async with client(FakeLink()) as http:
        response = await http.post("/abort_request", json={})
        assert (response.status_code, response.json()["param"]) == (400, "rid")


@pytest.mark.parametrize("path", ["/v1/tokenize", "/tokenize"])
async def test_tokenize(path: str) -> None:
    async with client(FakeLink()) as http:
        one = (await http.post(path, json={"prompt": "hé"})).json()
        assert one == {"tokens": [104, 195, 169], "count": 3, "max_model_len": 1000}
        many = (await http.post(path, json={"prompt": ["a", ""], "model": None})).json()
        assert (many["tokens"], many["count"]) == ([[97], []], [1, 0])
        chat = await http.post(path, json={"messages": [{"role": "user", "content": "x"}]})
        assert chat.json()["count"] == len("user: x\n")
        nothing = await http.post(path, json={})
        assert (nothing.status_code, nothing.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("path", ["/v1/detokenize", "/detokenize"])
async def test_detokenize(path: str) -> None:
    async with client(FakeLink()) as http:
        assert (await http.post(path, json={"tokens": [104, 105]})).json() == {"text": "hi"}
        many = await http.post(path, json={"tokens": [[104], [105]]})
        assert many.json() == {"text": ["h", "i"]}
        for wrong in ({}, {"tokens": "x"}, {"tokens": [-1]}):
            response = await http.post(path, json=wrong)
            assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens")
