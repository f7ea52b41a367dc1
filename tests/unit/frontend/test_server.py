"""Over real sockets: the openai package, clients that leave, drain, probes, broken bytes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.names import Role
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.errors import PeerLost
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.app import create_app
from pdcluster_worker.frontend.server import _listen, serve, serving
from pdcluster_worker.wire.local import Failed, Submit
from tests.unit.frontend.fakes import (
    LEG,
    ByteTokenizer,
    FakeLink,
    answer,
    app,
    frontend,
    settings,
)


@contextlib.asynccontextmanager
async def running(link: FakeLink, role: Role = Role.AGGREGATED) -> AsyncIterator[str]:
    async with serving(app(link, role), host="127.0.0.1", port=0, limits=LimitSpec()) as port:
        yield f"http://127.0.0.1:{port}"


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_openai_async_client() -> None:
    link = FakeLink(lambda s: answer(s, "héllo", stop=True))
    async with running(link) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as api:
        assert [model.id async for model in api.models.list()] == ["tiny"]
        stream = await api.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            top_logprobs=2,
            extra_body=LEG,
        )
        chunks = [chunk async for chunk in stream]
        texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "".join(texts) == "héllo"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 7
        done = await api.completions.create(model="tiny", prompt="hi", logprobs=1, seed=3)
        assert done.choices[0].text == "héllo"
        assert done.choices[0].logprobs is not None
        with pytest.raises(openai.BadRequestError) as caught:
            await api.completions.create(model="tiny", prompt="hi", temperature=-1)
        assert caught.value.param == "temperature"


async def test_openai_sync_client() -> None:
    def ask(url: str) -> tuple[str, str]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="x") as api:
            messages: Any = [{"role": "user", "content": "hi"}]
            whole = api.chat.completions.create(model="tiny", messages=messages)
            parts = api.chat.completions.create(model="tiny", messages=messages, stream=True)
            text = "".join(part.choices[0].delta.content or "" for part in parts)
            return whole.choices[0].message.content or "", text

    async with running(FakeLink()) as url:
        assert await asyncio.to_thread(ask, url) == ("hello", "hello")


async def test_openai_client_sees_an_error_in_the_middle_of_a_stream() -> None:
    def script(submit: Submit) -> list[Any]:
        return [
            *answer(submit, "hello")[:2],
            Failed(rid=submit.rid, kind=PeerLost.kind, message="peer gone"),
        ]

    async with (
        running(FakeLink(script)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as api,
    ):
        stream = await api.completions.create(model="tiny", prompt="x", stream=True)
        with pytest.raises(openai.APIError, match="peer gone"):
            async for _ in stream:
                pass


@pytest.mark.parametrize("sent", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
async def test_a_client_that_leaves_aborts(sent: int, stream: bool, path: str) -> None:
    link = FakeLink(lambda s: answer(s, "hello")[:sent])
    content = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "text": "x"}
    async with running(link) as url, httpx.AsyncClient() as http:
        task = asyncio.create_task(
            http.post(f"{url}{path}", json={**content, "rid": "r-1", "stream": stream})
        )
        await until(lambda: link.submitted)
        await asyncio.sleep(0.02)
        task.cancel()
        await until(lambda: link.aborted)
        assert link.aborted == [("r-1", "the client left", False)]


async def test_requests_that_end_are_not_aborted() -> None:
    link = FakeLink()
    async with running(link) as url, httpx.AsyncClient() as http:
        for stream in (False, True):
            response = await http.post(f"{url}/generate", json={"text": "x", "stream": stream})
            assert response.status_code == 200
    assert link.aborted == []


async def test_http2_probe_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    async with running(FakeLink()) as url:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            await reader.read(100)
            writer.close()
            await writer.wait_closed()
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{url}/health")).status_code == 200
    assert [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []


async def test_body_limit_holds_without_content_length() -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    state = frontend(FakeLink(), requestBytesMax=4096)
    async with (
        serving(create_app(state), host="127.0.0.1", port=0, limits=LimitSpec()) as port,
        httpx.AsyncClient() as http,
    ):
        response = await http.post(f"http://127.0.0.1:{port}/generate", content=body())
        assert response.status_code == 413


LIMITS = LimitSpec(request_head_bytes_max=4096, request_read_timeout_s=0.3)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET /health HTTP/1.1\r\nx: " + b"a" * 5000, b"431"),
        (b"GET /" + b"a" * 5000, b"431"),
        (b"GET /health HTTP/1.1\r\n" + b"".join(b"x: %d\r\n" % i for i in range(1000)), b"431"),
        (b"GET /health HTTP/1.1\r\nx: a", b"408"),
        (b"", b"408"),
        (b"POST /generate HTTP/1.1\r\ncontent-length: 100\r\n\r\n{", b"408"),
        (b"GET /health HTTP/1.1\r\n\r\nGET", b"200"),
    ],
)
async def test_what_a_client_may_send_is_bounded(sent: bytes, code: bytes) -> None:
    link = FakeLink()
    async with serving(app(link), host="127.0.0.1", port=0, limits=LIMITS) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in (sent[:3000], sent[3000:]):
            writer.write(part)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(5.0):
            got = await reader.read()  # until the server hangs up
        writer.close()
    assert got.split()[1] == code
    assert not link.submitted


async def test_the_time_to_send_is_counted_for_each_request() -> None:
    link = FakeLink()
    async with (
        serving(app(link), host="127.0.0.1", port=0, limits=LIMITS) as port,
        httpx.AsyncClient() as http,
    ):
        for _ in range(3):  # over one connection that lasts longer than the limit
            answered = await http.get(f"http://127.0.0.1:{port}/health")
            assert answered.status_code == 200
            await asyncio.sleep(0.2)


async def test_a_long_answer_is_no_slow_request() -> None:
    link = FakeLink(lambda s: answer(s, "hello")[:1])
    async with (
        serving(app(link), host="127.0.0.1", port=0, limits=LIMITS) as port,
        httpx.AsyncClient() as http,
    ):
        asking = asyncio.create_task(
            http.post(f"http://127.0.0.1:{port}/generate", json={"text": "x"})
        )
        await until(lambda: link.submitted)
        await asyncio.sleep(2 * LIMITS.request_read_timeout_s)
        (submit,) = link.submitted
        for message in answer(submit, "hello")[1:]:
            link.inboxes[submit.rid].put(message)
        assert (await asking).json()["text"] == "hello"


def test_events_do_not_wait_for_acknowledgements() -> None:
    """A stream is small packets one behind the other: Nagle's algorithm would hold them back."""
    with (
        _listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_taken_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = serving(app(FakeLink()), host="127.0.0.1", port=port, limits=LimitSpec())
        with pytest.raises(OSError, match="in use"):
            await server.__aenter__()


def on_free_ports(chosen: Settings) -> Settings:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = replace(
            chosen.launch.ports, http=one.getsockname()[1], bootstrap=two.getsockname()[1]
        )
    return replace(chosen, launch=replace(chosen.launch, ports=ports))


async def test_serve_and_drain() -> None:
    link = FakeLink(lambda s: answer(s, "hello")[:1])
    chosen = on_free_ports(settings(Role.PREFILL, drainTimeoutS=5))
    stop, listening = asyncio.Event(), asyncio.Event()
    server = asyncio.create_task(
        serve(
            chosen,
            link=link,
            tokenizer=ByteTokenizer(),
            clock=SystemClock(),
            stop=stop,
            listening=listening,
        )
    )
    await asyncio.wait_for(listening.wait(), 5)
    url = f"http://127.0.0.1:{chosen.launch.ports.http}"
    async with httpx.AsyncClient() as http:
        bootstrap = f"http://127.0.0.1:{chosen.launch.ports.bootstrap}"
        assert (await http.get(f"{bootstrap}/health")).status_code == 200
        body = {"text": "x", "bootstrap_room": 1}
        live = asyncio.create_task(http.post(f"{url}/generate", json=body))
        await until(lambda: link.submitted)
        stop.set()
        await asyncio.sleep(0.05)
        assert (await http.get(f"{url}/health")).status_code == 503
        refused = await http.post(f"{url}/generate", json=body)
        assert refused.status_code == 503
        assert refused.json()["type"] == "draining"
        assert not server.done()
        (submit,) = link.submitted
        for message in answer(submit, "hello")[1:]:
            link.inboxes[submit.rid].put(message)
        assert (await live).json()["text"] == "hello"
        await asyncio.wait_for(server, 5)
    assert json.dumps(link.aborted) == "[]"


async def test_drain_has_a_limit() -> None:
    link = FakeLink(lambda _: [])
    chosen = on_free_ports(settings(Role.AGGREGATED, drainTimeoutS=0.1))
    stop, listening = asyncio.Event(), asyncio.Event()
    server = asyncio.create_task(
        serve(
            chosen,
            link=link,
            tokenizer=ByteTokenizer(),
            clock=SystemClock(),
            stop=stop,
            listening=listening,
        )
    )
    await asyncio.wait_for(listening.wait(), 5)
    async with httpx.AsyncClient() as http:
        url = f"http://127.0.0.1:{chosen.launch.ports.http}/generate"
        live = asyncio.create_task(http.post(url, json={"text": "x"}))
        await until(lambda: link.submitted)
        stop.set()
        await asyncio.wait_for(server, 5)
        response = await live
        assert (response.status_code, response.json()["type"]) == (503, "draining")
    assert len(link.aborted) == 1
