"""What is compared: a whole local PD cluster, and an aggregated worker behind the same router.

The cluster runs in a process of its own, so that its kubelet does not share a loop with the client
that reads the clock.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import ENV_POD_IP, ENV_POD_NAME, PORT_HTTP, PORT_ROUTER, Role
from pdcluster_api.schema import encode
from pdcluster_operator.local.session import Session
from pdcluster_operator.render.placement import Placement
from pdcluster_operator.render.router import router_spec
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec import PDCluster, read_cluster

START_S = 300.0  # a first run converts the model
END_S = 60.0
PD_NETWORK = "127.83.0.0/16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What every worker serves, and how. One data type and page size for all."""

    source: str
    dtype: str
    threads: int
    kv_pages: int

    def engine(self, *, threads: int, chunk_tokens: int) -> EngineSpec:
        return EngineSpec(
            device="cpu", dtype=self.dtype, threads=threads, kv_pages=self.kv_pages,
            chunk_tokens=chunk_tokens,
        )  # fmt: skip

    def cluster(self, chunk_tokens: int) -> PDCluster:
        """One prefill, one decode, one router."""
        engine = self.engine(threads=self.threads, chunk_tokens=chunk_tokens)
        return read_cluster(
            {
                "apiVersion": "pdcluster.dev/v1alpha1",
                "kind": "PDCluster",
                "metadata": {"name": "bench-serving"},
                "spec": {
                    "model": {"source": self.source, "servedName": "m"},
                    "engine": encode(engine),
                },
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that serves."""

    name: str
    url: str  # of the router
    workers: dict[str, str] = field(default_factory=dict)  # role -> address


@contextlib.asynccontextmanager
async def disaggregated(model: Model, *, chunk_tokens: int) -> AsyncIterator[System]:
    """The cluster that `pdcluster up` would run."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    cluster = model.cluster(chunk_tokens)
    child = context.Process(target=_run_session, args=(cluster, theirs))
    child.start()
    try:
        async with asyncio.timeout(START_S):
            while not ours.poll():
                if not child.is_alive():
                    raise RuntimeError("the cluster ended while it started")
                await asyncio.sleep(0.1)
        snapshot: dict[str, Any] = ours.recv()
        workers = {
            pod["role"]: f"http://{pod['ip']}:{PORT_HTTP}"
            for pod in snapshot["pods"]
            if pod["role"] != "router"
        }
        yield System(name="PD", url=snapshot["endpoint"], workers=workers)
    finally:
        ours.send("stop")
        await asyncio.to_thread(child.join, END_S)
        child.kill()


def _run_session(cluster: PDCluster, pipe: Connection) -> None:
    asyncio.run(_session(cluster, pipe))


async def _session(cluster: PDCluster, pipe: Connection) -> None:
    own = load_settings()
    with tempfile.TemporaryDirectory(prefix="pdc-serving-") as state:
        settings = Settings(
            state_dir=Path(state), cache_dir=own.cache_dir, local_range=PD_NETWORK,
            inherited=own.inherited,
        )  # fmt: skip
        async with Session(cluster, settings) as session:
            await session.serving()
            pipe.send(session.snapshot())
            await asyncio.to_thread(pipe.recv)
            session.stop()
            await session.ended()


@contextlib.asynccontextmanager
async def aggregated(
    model: Model, *, index: int, threads: int, chunk_tokens: int
) -> AsyncIterator[System]:
    """One worker that does both, behind the router with the cluster's own options."""
    network = f"127.84.{os.getpid() % 250 + 1}"
    host, front = f"{network}.{2 * index + 1}", f"{network}.{2 * index + 2}"
    launch = LaunchSpec(
        role=Role.AGGREGATED,
        model=ModelSpec(source=model.source, served_name="m"),
        engine=model.engine(threads=threads, chunk_tokens=chunk_tokens),
    )
    url, router = f"http://{host}:{PORT_HTTP}", f"http://{front}:{PORT_ROUTER}"
    pod = router_spec(model.cluster(chunk_tokens), Placement())["containers"][0]
    words = [word.replace(f"$({ENV_POD_IP})", front) for word in pod["command"] + pod["args"]]
    words.remove("--pd-disaggregation")
    smg = str(Path(sys.executable).with_name(words.pop(0)))
    async with contextlib.AsyncExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdc-serving-")))
        env = {
            ENV_POD_NAME: f"aggregated-{threads}",
            "PDCLUSTER_LAUNCH": json.dumps(encode(launch)),
            ENV_POD_IP: host,
            "PDCLUSTER_RUN_DIR": str(run),
            "PDCLUSTER_CACHE_DIR": str(load_settings().cache_dir),
            "PDCLUSTER_LOG_LEVEL": "warning",
        }
        worker = (sys.executable, "-m", "pdcluster_worker")
        await stack.enter_async_context(_process(worker, env, f"{url}/health", run / "log"))
        command = (smg, *words, "--worker-urls", url)
        await stack.enter_async_context(_process(command, {}, f"{router}/readiness", run / "smg"))
        yield System(
            name=f"aggregated, {threads} thr., chunk {chunk_tokens}", url=router,
            workers={"aggregated": url},
        )  # fmt: skip


@contextlib.asynccontextmanager
async def _process(
    command: tuple[str, ...], env: dict[str, str], health: str, log: Path
) -> AsyncIterator[None]:
    """A process, once ``health`` says 200; ended with its children."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        async with asyncio.timeout(START_S), httpx.AsyncClient(trust_env=False) as http:
            while True:
                if process.returncode is not None:
                    raise RuntimeError(f"{command[:3]} ended:\n{log.read_text()[-2000:]}")
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(health)).status_code == 200:
                        break
                await asyncio.sleep(0.1)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
