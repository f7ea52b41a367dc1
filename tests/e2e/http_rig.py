"""One cluster for the tests of the HTTP surface, and an older router in front of its workers."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pdcluster_api.names import PORT_BOOTSTRAP, PORT_HTTP
from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import load_settings
from tests.e2e import rig

TINY = "tiny://llama?seed=0"
CAPACITY = 2048  # tokens
ENGINE = {"threads": 1, "dtype": "float32", "kvPages": CAPACITY // 16, "chunkTokens": 256}
ROUTER_START_S = 30.0
OLD_ROUTER = "sglang-router==0.3.2"


def document(**spec: Any) -> dict[str, Any]:
    """A small cluster of the tiny model."""
    return rig.manifest(source=TINY, engine=ENGINE, **spec)


def address(session: Session, role: str, index: int = 0) -> str:
    """IP of a worker."""
    return str(rig.pods(session, role)[index]["ip"])


def url(session: Session, role: str, index: int = 0) -> str:
    """HTTP address of a worker."""
    return f"http://{address(session, role, index)}:{PORT_HTTP}"


async def initial(session: Session) -> None:
    """Wait until every pool is as it was before the first request."""
    for role in ("prefill", "decode"):
        for pod in rig.pods(session, role):
            await rig.until_initial(str(pod["ip"]))


async def installed_router() -> Path:
    """A folder with sglang-router, installed once into the cache. Skips without a registry.

    It cannot live in the environment: it brings a command `smg` of its own, over that of smg.
    """
    folder = load_settings().cache_dir / "tests" / OLD_ROUTER.replace("==", "-")
    if not (folder / "sglang_router").exists():
        command = (
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--target",
            str(folder),
            OLD_ROUTER,
        )
        process = await asyncio.create_subprocess_exec(*command)
        if await process.wait():
            pytest.skip(f"{OLD_ROUTER} cannot be installed here")
    return folder


@contextlib.asynccontextmanager
async def sglang_router(session: Session, state: Path) -> AsyncIterator[str]:
    """sglang-router in front of the session's workers; yields its address once it routes."""
    host = address(session, "prefill").rpartition(".")[0] + ".250"
    command = [
        *(sys.executable, "-m", "sglang_router.launch_router", "--pd-disaggregation"),
        *("--host", host, "--port", "30000", "--prometheus-host", host),
        *("--prometheus-port", "29000", "--policy", "round_robin", "--log-level", "warn"),
        *("--worker-startup-check-interval", "1", "--disable-circuit-breaker"),
    ]
    for index in range(len(rig.pods(session, "prefill"))):
        command += ["--prefill", url(session, "prefill", index), str(PORT_BOOTSTRAP)]
    for index in range(len(rig.pods(session, "decode"))):
        command += ["--decode", url(session, "decode", index)]
    env = {**os.environ, "PYTHONPATH": str(await installed_router())}
    with (state / "sglang-router.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env=env, start_new_session=True
        )
    try:
        await _until_routed(f"http://{host}:30000", process)
        yield f"http://{host}:30000"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _until_routed(base: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(ROUTER_START_S), httpx.AsyncClient(trust_env=False) as http:
        while True:
            assert process.returncode is None, "the router has ended"
            with contextlib.suppress(httpx.HTTPError):
                if (await http.get(f"{base}/readiness")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
