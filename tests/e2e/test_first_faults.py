"""A worker killed or hung under load, and prompts that do not fit: what clients and peers see."""

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


BOTH = frozenset(("pdcluster_worker", "pdcluster_worker.roles"))
SCHEDULER = frozenset(("pdcluster_worker.roles",))


def pids(address: str, modules: frozenset[str] = BOTH) -> list[int]:
    """The processes of the worker container of the pod with this address."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        line, env = process.info["cmdline"] or [], process.info["environ"] or {}
        if env.get("PDCLUSTER_POD_IP") == address and modules & set(line):
            found.append(process.info["pid"])
    return found


async def under_load(
    session: Session, role: str, *, sent: signal.Signals, modules: frozenset[str], within_s: float
) -> tuple[list[dict[str, Any]], str]:
    """8 long requests in flight, then a signal to one role's worker; their answers."""
    address = str(rig.pods(session, role)[0]["ip"])
    tasks = [
        asyncio.create_task(
            rig.generate(session.endpoint, [room + 20] * 1500, max_new=400, timeout_s=30.0)
        )
        for room in range(8)
    ]
    await asyncio.sleep(1.0)
    for pid in pids(address, modules):
        os.kill(pid, sent)
    async with asyncio.timeout(within_s):
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
        answers, _ = await under_load(
            session, role, sent=signal.SIGKILL, modules=BOTH,
            within_s=10.0,  # the limit that the client is promised
        )  # fmt: skip
        assert any(a["status"] != 200 for a in answers), "the kill came too late to hit anything"
        await until_healed(session, role, survivor)


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_hung_scheduler_is_noticed_and_replaced(role: str, tmp_path: Path) -> None:
    survivor = {"prefill": "decode", "decode": "prefill"}[role]
    document = rig.manifest(source=TINY, limits={"loopHangS": 2.0}, engine={
        "threads": 1, "dtype": "float32", "kvPages": 1200, "chunkTokens": 128
    })  # fmt: skip
    async with rig.cluster(document, tmp_path) as session:
        await rig.generate(session.endpoint, [30] * 100, max_new=4)
        answers, _ = await under_load(
            session, role, sent=signal.SIGSTOP, modules=SCHEDULER, within_s=20.0
        )
        assert any(a["status"] != 200 for a in answers), "the stop came too late to hit anything"
        await until_healed(session, role, survivor)


async def until_healed(session: Session, role: str, survivor: str) -> None:
    """Restarted, serving, and both with every page back."""
    addresses = [str(rig.pods(session, one)[0]["ip"]) for one in (survivor, role)]
    async with asyncio.timeout(90.0):
        while not (rig.pods(session, role)[0]["restarts"] and session.phase == "serving"):
            await asyncio.sleep(0.2)
    await rig.until_initial(addresses[0], within_s=30.0)
    answer = await rig.generate(session.endpoint, [31] * 100, max_new=4)
    assert answer["status"] == 200, answer
    for address in addresses:
        await rig.until_initial(address)


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
