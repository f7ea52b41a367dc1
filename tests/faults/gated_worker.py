"""A worker that can be held in a stage: real in everything but that one moment, which waits.

Run as a script, like ``python -m pdcluster_worker``. While a file ``hold-GATE`` is in
PDCLUSTER_RUN_DIR, what it names waits; nothing is skipped, and the loop itself goes on:

    admit     decode: nothing gets pages
    prompts   prefill: no prompt enters the engine
    mid       a pass over a marked prompt that is not its last chunk
    last      a pass over the last chunk of a marked prompt
    writes    writes are posted, but not polled (so that their notices stay here)
    notices   what peers have written is not looked at
    passes    every pass takes `PASS_S` longer

``peer-port`` there is the port that peers are told instead of ours: a proxy's.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdcluster_worker import launch
from pdcluster_worker.core import settings as settings_module
from pdcluster_worker.core.ports import SequenceStep, WriteState
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.engine.device import thread_env
from pdcluster_worker.engine.runner import PassRunner
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.prompts import PromptQueue
from pdcluster_worker.roles import __main__ as scheduler
from pdcluster_worker.roles.sockets import PeerSockets
from pdcluster_worker.transfer.nixl import NixlTransport
from pdcluster_worker.transfer.settings import ucx_environment

MARK = 256  # prompts of tokens from here on are the marked ones
PASS_S = 0.02
STEP_S = 0.002
SCHEDULER = "scheduler"  # the argument of the child process


def install(run: Path) -> None:
    """Put the gates in."""

    def held(gate: str) -> bool:
        return (run / f"hold-{gate}").exists()

    def shut(owner: type, name: str, *, gate: str, instead: Callable[[], Any]) -> None:
        original = vars(owner)[name]

        def gated(self: object, *args: Any, **kwargs: Any) -> Any:
            return instead() if held(gate) else original(self, *args, **kwargs)

        setattr(owner, name, gated)

    shut(DecodePipeline, "_admit", gate="admit", instead=lambda: None)
    shut(PromptQueue, "admit", gate="prompts", instead=list)
    shut(NixlTransport, "poll", gate="writes", instead=lambda: WriteState.PENDING)
    shut(NixlTransport, "notices", gate="notices", instead=list)
    _slow(held)
    _announce(run / "peer-port")


def _slow(held: Callable[[str], bool]) -> None:
    original = vars(PassRunner)["_one"]

    def one(self: object, batch: tuple[SequenceStep, ...]) -> Any:
        marked = [step for step in batch if len(step.tokens) > 1 and step.tokens[0] >= MARK]
        for gate in ["mid" if step.sample is None else "last" for step in marked]:
            while held(gate):
                time.sleep(STEP_S)
        if held("passes"):
            time.sleep(PASS_S)
        return original(self, batch)

    owner: Any = PassRunner
    owner._one = one


def _announce(file: Path) -> None:
    original = PeerSockets.__init__

    def made(self: PeerSockets, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.port = int(file.read_text())

    owner: Any = PeerSockets
    owner.__init__ = made


async def _start_scheduler(settings: Settings) -> asyncio.subprocess.Process:
    """As `launch` does, but this script."""
    extra = {
        **thread_env(settings.launch.engine.threads),
        **ucx_environment(settings.ucx),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, SCHEDULER, env=settings.child_environment(extra)
    )


def main() -> int:
    """The worker, or its scheduler."""
    if sys.argv[1:] == [SCHEDULER]:
        install(settings_module.load().run_dir)
        return scheduler.main()
    vars(launch)["_start_scheduler"] = _start_scheduler
    return launch.main()


if __name__ == "__main__":
    sys.exit(main())
