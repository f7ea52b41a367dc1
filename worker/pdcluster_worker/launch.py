"""The main process of the worker container: the frontend, and the scheduler as its child.

    listen -> start scheduler -> Ready -> serve ... SIGTERM -> drain -> stop scheduler -> exit 0
                                          scheduler dies -> clients get 503, exit 1

The container restarts as a whole: a half-restarted worker would be one more state to reason about.
"""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import Process
from typing import Final

from pdcluster_worker.core.clock import Clock, SystemClock
from pdcluster_worker.core.log import Log, Sparse, configure
from pdcluster_worker.core.settings import Settings, SettingsError, load
from pdcluster_worker.engine.device import thread_env
from pdcluster_worker.frontend.link import ZmqLink
from pdcluster_worker.frontend.server import serve
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.source import prepare
from pdcluster_worker.models.tokenizer import Tokenizer
from pdcluster_worker.transfer.settings import ucx_environment

SCHEDULER_STOP_S: Final = 5.0  # SIGTERM to SIGKILL of the scheduler; it has nothing left to do
FLUSH_S: Final = 0.5  # for the last errors to reach clients after the scheduler has died

_log: Final = Log("launch")


def main() -> int:
    """Run until SIGTERM. Exit codes: 0 drained, 1 the scheduler or the model failed, 2 settings."""
    try:
        settings = load()
        configure(settings.log_level)
        settings.prepare()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return asyncio.run(_run(settings, SystemClock()))


async def _run(settings: Settings, clock: Clock) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    limits = settings.launch.limits
    link = ZmqLink(
        requests=settings.requests_address,
        outputs=settings.outputs_address,
        status=settings.status_address,
        # Twice the scheduler's limit: the scheduler refuses first, and tells the other leg.
        live_max=2 * limits.queued_requests_max,
        sparse=Sparse(clock),
    )
    link.start()
    scheduler = await _start_scheduler(settings)
    watch = asyncio.create_task(scheduler.wait())
    try:
        return await _serve(settings, clock=clock, link=link, watch=watch, stop=stop)
    finally:
        await _stop_scheduler(scheduler)
        link.close()


async def _serve(
    settings: Settings,
    *,
    clock: Clock,
    link: ZmqLink,
    watch: "asyncio.Task[int]",
    stop: asyncio.Event,
) -> int:
    try:
        folder = await asyncio.to_thread(prepare, settings.launch.model.source, settings.cache_dir)
        tokenizer = await asyncio.to_thread(Tokenizer, folder)
    except ModelError as error:
        _log.error("the model cannot be served", error=str(error))
        return 1
    serving = asyncio.create_task(
        serve(settings, link=link, tokenizer=tokenizer, clock=clock, stop=stop)
    )
    done, _ = await asyncio.wait({serving, watch}, return_when=asyncio.FIRST_COMPLETED)
    if serving in done:
        serving.result()
        return 0
    _log.error("the scheduler has died", exit_code=watch.result())
    link.lost("the worker's scheduler has died")
    await asyncio.sleep(FLUSH_S)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return 1


async def _start_scheduler(settings: Settings) -> Process:
    extra = {**thread_env(settings.launch.engine.threads), **ucx_environment(settings.ucx)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pdcluster_worker.roles", env=settings.child_environment(extra)
    )


async def _stop_scheduler(scheduler: Process) -> None:
    if scheduler.returncode is not None:
        return
    scheduler.terminate()
    try:
        async with asyncio.timeout(SCHEDULER_STOP_S):
            await scheduler.wait()
    except TimeoutError:
        _log.error("the scheduler did not stop; killed")
        scheduler.kill()
        await scheduler.wait()
