"""A prefill and a decode scheduler as real processes over NIXL, without frontends or router."""

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

import numpy as np

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import PORT_BOOTSTRAP, Role
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.log import Sparse
from pdcluster_worker.core.settings import Settings, load
from pdcluster_worker.frontend.link import ZmqLink
from pdcluster_worker.frontend.server import serving
from pdcluster_worker.rendezvous.server import BootstrapServer
from pdcluster_worker.wire.local import Failed, Hop, Sampling, Submit, Tokens
from tests.e2e.rig import START_S

SCRIPT = Path(__file__).parent / "hooked_scheduler.py"
_pairs = itertools.count(1)


@dataclass(slots=True)
class Side:
    """One scheduler."""

    settings: Settings
    link: ZmqLink
    process: asyncio.subprocess.Process

    @property
    def digests(self) -> dict[int, str]:
        """Room -> digest of its pages."""
        lines = (self.settings.run_dir / "digests").read_text().splitlines()
        return {entry["room"]: entry["kv"] for entry in map(json.loads, lines)}

    async def ask(
        self, rid: str, prompt: list[int], *, hop: Hop, max_new: int
    ) -> list[Tokens] | Failed:
        """Submit, and collect until the end."""
        submit = Submit(
            rid=rid,
            input_ids=np.array(prompt, "<i4").tobytes(),
            sampling=Sampling(temperature=0.0, max_new_tokens=max_new, ignore_eos=True),
            hop=hop,
        )
        inbox = self.link.open(submit)
        messages: list[Tokens] = []
        while True:
            message = await inbox.get()
            if isinstance(message, Failed):
                return message
            messages.append(message)
            if message.finish is not None:
                return messages


@contextlib.asynccontextmanager
async def pair(
    state: Path, *, spoil: bool = False, decode_page_tokens: int = 16
) -> AsyncIterator[tuple[Side, Side]]:
    """Both schedulers, ready. ``spoil``: decode zeroes a page that it was given."""
    number = next(_pairs)
    async with contextlib.AsyncExitStack() as stack:
        sides = []
        for index, role in enumerate((Role.PREFILL, Role.DECODE)):
            address = f"127.80.{os.getpid() % 250 + 1}.{2 * number + index}"
            hook = {"spoil": spoil and role is Role.DECODE}
            launch = LaunchSpec(
                role=role,
                model=ModelSpec(source="tiny://llama?seed=0"),
                engine=EngineSpec(
                    dtype="float32",
                    threads=1,
                    chunk_tokens=128,
                    page_tokens=16 if role is Role.PREFILL else decode_page_tokens,
                ),
            )
            side = await stack.enter_async_context(
                _side(launch, address, state / f"{role}{number}", hook)
            )
            sides.append(side)
        for side in sides:
            async with asyncio.timeout(START_S):
                await side.link.wait_ready()
        yield sides[0], sides[1]


@contextlib.asynccontextmanager
async def _side(
    launch: LaunchSpec, address: str, run: Path, hook: dict[str, Any]
) -> AsyncIterator[Side]:
    run.mkdir(parents=True)
    (run / "hook.json").write_text(json.dumps({**hook, "digests": str(run / "digests")}))
    own = load({**os.environ, "PDCLUSTER_LAUNCH": '{"role": "prefill"}'})
    settings = Settings(
        launch=launch, pod_name=run.name, pod_uid=f"uid-{run.name}", pod_ip=address, token="",
        token_file=None, run_dir=run, run_dir_given=True, cache_dir=own.cache_dir,
        log_level="warning", ucx={},
    )  # fmt: skip
    clock = SystemClock()
    link = ZmqLink(
        requests=settings.requests_address, outputs=settings.outputs_address,
        status=settings.status_address, live_max=64, sparse=Sparse(clock),
    )  # fmt: skip
    link.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(link.close)
        if launch.role is Role.PREFILL:
            bootstrap = BootstrapServer(clock, token="", rooms_max=64)
            await stack.enter_async_context(
                serving(bootstrap.app(), host=address, port=PORT_BOOTSTRAP, limits=launch.limits)
            )
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), env=settings.child_environment({}), start_new_session=True
        )
        try:
            yield Side(settings, link, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
