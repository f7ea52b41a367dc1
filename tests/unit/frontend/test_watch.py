"""A scheduler that hangs: what probes, new requests and waiting clients get to see."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.frontend.app import create_app
from pdcluster_worker.frontend.frontend import Frontend
from pdcluster_worker.frontend.watch import watch
from pdcluster_worker.wire.local import Status
from tests.unit.frontend.fakes import STATUS, FakeLink, answer, frontend

LOOP_HANG_S = 10.0


class Hand(SystemClock):
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at


class Slow(FakeLink):
    """A scheduler in the middle of a long forward pass, or that takes nothing."""

    computing_s = 0.0
    refusing = ""

    async def status(self, timeout_s: float) -> Status:
        await super().status(timeout_s)
        return msgspec.structs.replace(STATUS, computing_s=self.computing_s, refusing=self.refusing)


@contextlib.asynccontextmanager
async def watched(link: FakeLink, tmp_path: Path) -> AsyncIterator[tuple[Frontend, Hand]]:
    """A frontend whose scheduler's status socket is open, as that of a stopped process is."""
    clock = Hand()
    state = frontend(link, loopHangS=LOOP_HANG_S)
    state.settings = replace(state.settings, run_dir=tmp_path)
    state.clock = clock
    path = state.settings.status_address.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)  # soon full: nobody accepts
        task = asyncio.create_task(watch(state, interval_s=0.001))
        try:
            yield state, clock
        finally:
            task.cancel()
            await asyncio.wait((task,))


def http(state: Frontend) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(state))
    return httpx.AsyncClient(transport=transport, base_url="http://worker")


async def probes(client: httpx.AsyncClient) -> tuple[int, int]:
    """The codes of readiness and liveness, after the next looks."""
    await asyncio.sleep(0.05)
    return (await client.get("/ready")).status_code, (await client.get("/live")).status_code


async def test_silence_costs_readiness_first_and_liveness_later(tmp_path: Path) -> None:
    link = FakeLink()
    async with watched(link, tmp_path) as (state, clock), http(state) as client:
        assert await probes(client) == (200, 200)
        link.silent = True
        clock.at += 1.0
        assert await probes(client) == (200, 200), "one late answer means nothing"
        clock.at += 2.0
        assert await probes(client) == (503, 200)
        taken = await client.post("/generate", json={"text": "x"})
        assert taken.status_code == 200, "a scheduler that is late for a moment serves it"
        clock.at += LOOP_HANG_S
        assert await probes(client) == (503, 503)
        refused = await client.post("/generate", json={"text": "x"})
        assert refused.status_code == 503
        assert "silent for 13.0 s" in refused.json()["message"]
        link.silent = False
        assert await probes(client) == (200, 200)


@pytest.mark.parametrize("stream", [False, True])
async def test_who_waits_for_a_hung_scheduler_is_told(tmp_path: Path, stream: bool) -> None:
    link = FakeLink(lambda submit: answer(submit, "hello")[:1])
    async with watched(link, tmp_path) as (state, clock), http(state) as client:
        assert await probes(client) == (200, 200)
        body = {"text": "x", "stream": stream}
        waiting = asyncio.create_task(client.post("/generate", json=body))
        await asyncio.sleep(0.02)
        link.silent = True
        clock.at += LOOP_HANG_S + 3.0
        async with asyncio.timeout(5.0):
            response = await waiting
        assert "has been silent" in response.text
        assert response.status_code == (200 if stream else 503)
        # Should it wake up, it must not go on for nobody.
        assert [rid for rid, _, _ in link.aborted] == [link.submitted[0].rid]
        assert not state.live


async def test_a_long_forward_pass_is_no_hang_until_its_own_limit(tmp_path: Path) -> None:
    link = Slow()
    async with watched(link, tmp_path) as (state, clock), http(state) as client:
        link.computing_s = 299.0
        assert await probes(client) == (200, 200)
        link.computing_s = 301.0
        clock.at += 1.0
        assert await probes(client) == (503, 503)


async def test_a_scheduler_that_refuses_is_not_ready_and_lives(tmp_path: Path) -> None:
    link = Slow()
    async with watched(link, tmp_path) as (state, clock), http(state) as client:
        assert await probes(client) == (200, 200)
        link.refusing = "6 of 10 pages are in quarantine, over 50 %"
        clock.at += 1.0
        assert await probes(client) == (503, 200)
        assert "in quarantine" in (await client.get("/health")).json()["message"]


async def test_a_scheduler_that_is_not_there_yet_costs_no_liveness(tmp_path: Path) -> None:
    link = FakeLink()
    link.silent = True
    state = frontend(link)
    state.settings = replace(state.settings, run_dir=tmp_path)
    task = asyncio.create_task(watch(state, interval_s=0.001))
    async with http(state) as client:
        assert (await probes(client))[1] == 200, "a model that loads must not be killed"
    task.cancel()
    await asyncio.wait((task,))
