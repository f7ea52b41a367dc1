"""Whole clusters and single workers as real processes, for the end-to-end tests."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.schema import encode
from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec.manifest import read_cluster

START_S = 90.0  # of a cluster whose model is prepared; bounded, not expected
_names = itertools.count()
_addresses = itertools.count(1)


def manifest(
    *, source: str, name: str = "", prefill: int = 1, decode: int = 1, **spec: Any
) -> dict[str, Any]:
    """A PDCluster document; ``spec`` adds or replaces parts of its spec."""
    return {
        "apiVersion": "pdcluster.dev/v1alpha1",
        "kind": "PDCluster",
        "metadata": {"name": name or f"e2e-{os.getpid()}-{next(_names)}"},
        "spec": {
            "model": {"source": source, "servedName": "m"},
            "engine": {"threads": 1, "dtype": "float32"},
            "prefill": {"replicas": prefill},
            "decode": {"replicas": decode},
            **spec,
        },
    }


def settings(state: Path) -> Settings:
    """As a user's, but with run state of its own; converted models are shared with the user."""
    own = load_settings()
    return Settings(
        state_dir=state,
        cache_dir=own.cache_dir,
        local_range="127.78.0.0/16",
        inherited=own.inherited,
    )


@contextlib.asynccontextmanager
async def cluster(document: dict[str, Any], state: Path) -> AsyncIterator[Session]:
    """A cluster that serves; ended, with all its processes, on leaving."""
    async with Session(read_cluster(document), settings(state)) as session:
        async with asyncio.timeout(START_S):
            await session.serving()
        try:
            yield session
        finally:
            session.stop()
            async with asyncio.timeout(60.0):
                await session.ended()


@dataclass(slots=True)
class Worker:
    """One worker process without operator or router."""

    url: str
    process: asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def worker(launch: LaunchSpec, state: Path) -> AsyncIterator[Worker]:
    """A worker that is ready, at an address of its own."""
    address = f"127.79.{os.getpid() % 250 + 1}.{next(_addresses)}"
    run = state / f"w{next(_names)}"
    run.mkdir(parents=True)
    env = {
        **os.environ,
        "PDCLUSTER_LAUNCH": json.dumps(encode(launch)),
        "PDCLUSTER_POD_IP": address,
        "PDCLUSTER_RUN_DIR": str(run),
        "PDCLUSTER_CACHE_DIR": str(load_settings().cache_dir),
        "PDCLUSTER_LOG_LEVEL": "warning",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pdcluster_worker", env=env, start_new_session=True
    )
    url = f"http://{address}:{launch.ports.http}"
    try:
        await until_ready(url, process)
        yield Worker(url, process)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def until_ready(url: str, process: asyncio.subprocess.Process) -> None:
    """Wait for /health to say 200; raises when the process has ended or time is up."""
    async with asyncio.timeout(START_S), httpx.AsyncClient(trust_env=False) as client:
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"worker exited with {process.returncode}")
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"{url}/health")).status_code == 200:
                    return
            await asyncio.sleep(0.1)


async def generate(
    url: str, input_ids: list[int], *, max_new: int, timeout_s: float = 60.0
) -> dict[str, Any]:
    """Greedy /generate; the JSON answer, with the status as ``status``."""
    body = {
        "input_ids": input_ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": max_new, "ignore_eos": True},
        "return_logprob": True,
        "return_handoff": True,
        "model": "m",
    }
    async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
        answer = await client.post(f"{url}/generate", json=body)
    return {"status": answer.status_code, **answer.json()}


def tokens_of(answer: dict[str, Any]) -> list[int]:
    """The output tokens of a /generate answer with logprobs."""
    return [entry[1] for entry in answer["meta_info"]["output_token_logprobs"]]


def pods(session: Session, role: str) -> list[dict[str, Any]]:
    """The pods of a role, as the status shows them."""
    return [pod for pod in session.snapshot()["pods"] if pod["role"] == role]


async def loads(address: str) -> dict[str, Any]:
    """The scheduler's Status of one worker."""
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
        answer = await client.get(f"http://{address}:8000/v1/loads?include=all")
    return dict(answer.json()["pdcluster"])


async def until_initial(address: str, *, within_s: float = 20.0) -> dict[str, Any]:
    """Wait until no request is live and every page and row is free again."""
    async with asyncio.timeout(within_s):
        while True:
            status = await loads(address)
            pools = (status["pages"], status["rows"])
            if not status["stages"] and all(p["free"] == p["total"] for p in pools):
                return status
            await asyncio.sleep(0.1)
