"""What one leg refuses: the other ends by itself, and what another pair can serve is served."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pdcluster_operator.local.session import Session
from tests.e2e import http_rig, rig
from tests.e2e.http_rig import CAPACITY

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SMALL = {"kvPages": CAPACITY // 32}


def body(length: int, new: int = 4) -> dict[str, Any]:
    params = {"temperature": 0, "ignore_eos": True, "max_new_tokens": new}
    return {"input_ids": [40] * length, "sampling_params": params}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        yield client


@pytest.mark.parametrize("small", ["prefill", "decode"])
async def test_a_leg_that_refuses_alone_ends_the_other(
    small: str, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    """Neither client nor worker waits, whichever router stands between."""
    document = http_rig.document()
    document["spec"][small]["engine"] = SMALL
    async with (
        rig.cluster(document, tmp_path) as session,
        http_rig.sglang_router(session, tmp_path) as old_router,
    ):
        for base in (session.endpoint, old_router):
            warm = await http.post(f"{base}/generate", json=body(10))
            assert warm.status_code == 200, warm.text
            for stream in (False, True):
                async with asyncio.timeout(3.0):
                    ask = body(CAPACITY - 8) | {"stream": stream}
                    answer = await http.post(f"{base}/generate", json=ask)
                assert answer.status_code == 400, answer.text
            async with asyncio.timeout(3.0):
                await http_rig.initial(session)


def worker_pid(session: Session, address: str) -> int:
    """The main process of a worker."""
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        line, env = process.info["cmdline"] or [], process.info["environ"] or {}
        if env.get("PDCLUSTER_POD_IP") == address and "pdcluster_worker" in line:
            return int(process.info["pid"])
    raise LookupError(address)


async def refusals(http: httpx.AsyncClient, base: str) -> float:
    """Requests that a worker has answered with 503."""
    lines = (await http.get(f"{base}/metrics")).text.splitlines()
    found = [line for line in lines if 'code="503",path="/generate"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


@pytest.mark.parametrize("router", ["smg", "sglang-router"])
async def test_what_a_draining_worker_refuses_another_serves(
    router: str, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    spec = http_rig.document(decode=2, router={"policy": "round_robin"})
    async with (
        rig.cluster(spec, tmp_path) as session,
        http_rig.sglang_router(session, tmp_path) as old_router,
    ):
        base = session.endpoint if router == "smg" else old_router
        for _ in range(4):
            assert (await http.post(f"{base}/generate", json=body(5))).status_code == 200
        # A long answer on each decode keeps the one that is told to end draining for a while.
        long = [
            asyncio.create_task(http.post(f"{base}/generate", json=body(5, 1500))) for _ in "ab"
        ]
        await asyncio.sleep(0.3)
        address = http_rig.address(session, "decode")
        os.kill(worker_pid(session, address), signal.SIGTERM)
        await asyncio.sleep(0.1)
        short = [http.post(f"{base}/generate", json=body(5)) for _ in range(12)]
        answers = await asyncio.gather(*short)
        refused = await refusals(http, http_rig.url(session, "decode"))
        assert [answer.status_code for answer in answers] == [200] * 12, refused
        assert refused > 0
        assert [(await task).status_code for task in long] == [200, 200]
