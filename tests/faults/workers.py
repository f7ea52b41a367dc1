"""One prefill and one decode as real processes over NIXL, every TCP way between them a proxy's."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pdcluster_api.launch import EngineSpec, LaunchSpec, LimitSpec, ModelSpec
from pdcluster_api.names import PORT_BOOTSTRAP, PORT_HTTP, PORT_PEER, Role
from pdcluster_api.schema import encode
from pdcluster_operator.settings import load_settings
from tests.e2e.rig import until_ready
from tests.faults.proxy import Proxy

SCRIPT = Path(__file__).parent / "gated_worker.py"
PROXIED_PEER = PORT_PEER - 1  # what a worker's peers are told
TINY = "tiny://llama?seed=0"
LIMITS = LimitSpec(
    bootstrap_timeout_s=2.5, handshake_timeout_s=3.0, queue_timeout_s=6.0, transfer_timeout_s=5.0,
    orphan_ttl_s=3.0, heartbeat_interval_s=0.25, heartbeat_timeout_s=2.0, topology_interval_s=0.25,
    http_timeout_s=1.0, drain_timeout_s=2.0, loop_hang_s=60.0,
)  # fmt: skip
_numbers = itertools.count(1)


@dataclass(slots=True)
class Worker:
    """One pod, whose process may be ended and started again in place."""

    role: Role
    address: str
    run: Path
    process: asyncio.subprocess.Process | None = None
    proxy: Proxy | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}:{PORT_HTTP}"

    async def start(self) -> None:
        """Start the process, not waiting for it to be ready."""
        self.run.mkdir(parents=True, exist_ok=True)
        (self.run / "peer-port").write_text(str(PROXIED_PEER))
        if self.proxy is None:
            self.proxy = Proxy((self.address, PORT_PEER))
            await self.proxy.start(self.address, PROXIED_PEER)
        launch = LaunchSpec(
            role=self.role,
            model=ModelSpec(source=TINY, served_name="m"),
            engine=EngineSpec(threads=1, dtype="float32", kv_pages=256, chunk_tokens=64),
            limits=LIMITS,
        )
        env = {
            **os.environ,
            "PDCLUSTER_LAUNCH": json.dumps(encode(launch)),
            "PDCLUSTER_POD_IP": self.address,
            "PDCLUSTER_POD_UID": f"uid-{self.address}",
            "PDCLUSTER_RUN_DIR": str(self.run),
            "PDCLUSTER_CACHE_DIR": str(load_settings().cache_dir),
            "PDCLUSTER_LOG_LEVEL": "error",
            "PYTHONPATH": str(SCRIPT.parents[2]),
        }
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), env=env, start_new_session=True
        )

    async def ready(self) -> None:
        """Wait until it serves."""
        assert self.process is not None
        await until_ready(self.url, self.process)

    def send(self, number: signal.Signals) -> None:
        """To both processes of the worker."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process is not None:
            self.send(signal.SIGKILL)
            await self.process.wait()

    def hold(self, gate: str) -> None:
        """See `gated_worker`."""
        (self.run / f"hold-{gate}").touch()

    def let_go(self, gate: str) -> None:
        """Open the gate."""
        (self.run / f"hold-{gate}").unlink(missing_ok=True)

    async def status(self) -> dict[str, Any]:
        """The scheduler's own truth."""
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
            answer = await client.get(f"{self.url}/v1/loads?include=pdcluster")
        return dict(answer.json()["pdcluster"])


@dataclass(slots=True)
class Pair:
    """Both workers and the proxy in front of the bootstrap server."""

    prefill: Worker
    decode: Worker
    bootstrap: int = 0  # the port of the lasting proxy in front of the bootstrap server
    _proxies: list[Proxy] = field(default_factory=list)

    def side(self, role: Role) -> Worker:
        return self.prefill if role is Role.PREFILL else self.decode

    @property
    def workers(self) -> tuple[Worker, Worker]:
        return self.prefill, self.decode

    async def another_bootstrap(self) -> tuple[Proxy, int]:
        """An address of the bootstrap server that decode has never asked."""
        proxy = Proxy((self.prefill.address, PORT_BOOTSTRAP))
        self._proxies.append(proxy)
        return proxy, await proxy.start(self.prefill.address)

    async def start(self) -> None:
        """Both, anew where they run already."""
        for worker in self.workers:
            await worker.kill()
            for gate in worker.run.glob("hold-*"):
                gate.unlink()
            await worker.start()
        await asyncio.gather(*(worker.ready() for worker in self.workers))

    async def close(self) -> None:
        """End every process and proxy."""
        for worker in self.workers:
            await worker.kill()
            if worker.proxy is not None:
                await worker.proxy.close()
        for proxy in self._proxies:
            await proxy.close()


@contextlib.asynccontextmanager
async def pair(state: Path) -> AsyncIterator[Pair]:
    """Both workers, ready."""
    number = next(_numbers)
    network = f"127.81.{os.getpid() % 250 + 1}"
    both = Pair(
        Worker(Role.PREFILL, f"{network}.{2 * number}", state / "prefill"),
        Worker(Role.DECODE, f"{network}.{2 * number + 1}", state / "decode"),
    )
    try:
        await both.start()
        _, both.bootstrap = await both.another_bootstrap()
        yield both
    finally:
        await both.close()
