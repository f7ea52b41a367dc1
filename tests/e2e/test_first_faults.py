"""kill -9 of a worker under load, and prompts that do not fit: what clients and survivors see."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from pdcluster_operator.local.session import Session
from tests.e2e import rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

TINY = "tiny://llama?seed=0"


def scheduler_pids(address: str) -> list[int]:
    """The processes of the worker container of the pod with this address."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        line, env = process.info["cmdline"] or [], process.info["environ"] or {}
        modules = {"pdcluster_worker", "pdcluster_worker.roles"}
        if env.get("PDCLUSTER_POD_IP") == address and modules & set(line):
            found.append(process.info["pid"])
    return found


async def under_load(session: Session, kill_role: str) -> tuple[list[dict[str, Any]], str]:
    """8 long requests in flight, then kill -9 of one role's worker; their answers."""
    address = str(rig.pods(session, kill_role)[0]["ip"])
    tasks = [
        asyncio.create_task(
            rig.generate(session.endpoint, [room + 20] * 1500, max_new=400, timeout_s=30.0)
        )
        for room in range(8)
    ]
    await asyncio.sleep(1.0)
    for pid in scheduler_pids(address):
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10.0):  # the limit that the client is promised
        answers = await asyncio.gather(*tasks)
    return answers, address


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_kill_of_a_worker_with_requests_in_flight(role: str, tmp_path: Path) -> None:
    survivor = {"prefill": "decode", "decode": "prefill"}[role]
    document = rig.manifest(source=TINY, engine={
        "threads": 1, "dtype": "float32", "kvPages": 1200, "chunkTokens": 128
    })  # fmt: skip
    async with rig.cluster(document, tmp_path) as session:
        await rig.generate(session.endpoint, [30] * 100, max_new=4)
        answers, killed = await under_load(session, role)
        ended = [a for a in answers if a["status"] != 200]
        assert ended, "the kill came too late to hit anything"
        survivor_ip = str(rig.pods(session, survivor)[0]["ip"])
        async with asyncio.timeout(60.0):
            while not (rig.pods(session, role)[0]["restarts"] and session.phase == "serving"):
                await asyncio.sleep(0.2)
        await rig.until_initial(survivor_ip, within_s=30.0)
        answer = await rig.generate(session.endpoint, [31] * 100, max_new=4)
        assert answer["status"] == 200, answer
        await rig.until_initial(survivor_ip)
        await rig.until_initial(killed)


async def test_prompt_beyond_capacity_is_a_clean_400(tmp_path: Path) -> None:
    document = rig.manifest(source=TINY, engine={"threads": 1, "dtype": "float32", "kvPages": 32})
    async with rig.cluster(document, tmp_path) as session:
        too_long = await rig.generate(session.endpoint, [30] * 513, max_new=4)
        assert too_long["status"] == 400, too_long
        assert "512" in str(too_long), too_long
        fits = await rig.generate(session.endpoint, [30] * 512, max_new=4)
        assert fits["status"] == 200, fits
        for role in ("prefill", "decode"):
            await rig.until_initial(str(rig.pods(session, role)[0]["ip"]))
