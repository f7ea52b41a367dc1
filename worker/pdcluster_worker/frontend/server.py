"""Runs the frontend: HTTP for clients and, on a prefill, the bootstrap server, in one event loop.

    listen -> serve (503 until the scheduler is Ready) -> stop is set: drain -> close

Draining: /health and new requests answer 503, accepted ones go on, for at most
``limits.drain_timeout_s``.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from pdcluster_api.launch import LimitSpec
from pdcluster_api.names import Role
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import Draining
from pdcluster_worker.core.log import Log
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.app import create_app
from pdcluster_worker.frontend.frontend import Frontend
from pdcluster_worker.frontend.link import SchedulerLink
from pdcluster_worker.frontend.metrics import FrontendMetrics
from pdcluster_worker.frontend.protocol import limited
from pdcluster_worker.frontend.text import Tokenizer
from pdcluster_worker.frontend.watch import watch
from pdcluster_worker.rendezvous.server import BootstrapServer

BACKLOG: Final = 1024
KEEP_ALIVE_S: Final = 75  # longer than routers keep idle connections, so that they close first
DRAIN_POLL_S: Final = 0.02
CLOSE_TIMEOUT_S: Final = 2  # connections that are still open after the drain

_log: Final = Log("frontend")


async def serve(
    settings: Settings,
    *,
    link: SchedulerLink,
    tokenizer: Tokenizer,
    clock: Clock,
    stop: asyncio.Event,
    listening: asyncio.Event | None = None,
) -> None:
    """Serve until ``stop`` is set and the drain is over. OSError when a port is taken.

    ``listening`` is set as soon as connections are accepted. Signals are the caller's.
    """
    launch = settings.launch
    frontend = Frontend(
        settings=settings,
        link=link,
        tokenizer=tokenizer,
        clock=clock,
        metrics=FrontendMetrics(launch.role),
    )
    async with contextlib.AsyncExitStack() as stack:
        if launch.role is Role.PREFILL:
            rooms_max = launch.limits.rooms_tracked_max
            bootstrap = BootstrapServer(clock, token=settings.token, rooms_max=rooms_max)
            await stack.enter_async_context(
                serving(
                    bootstrap.app(),
                    host=settings.pod_ip,
                    port=launch.ports.bootstrap,
                    limits=launch.limits,
                )
            )
        await stack.enter_async_context(
            serving(
                create_app(frontend),
                host=settings.pod_ip,
                port=launch.ports.http,
                limits=launch.limits,
            )
        )
        if listening is not None:
            listening.set()
        await _run(_until_drained(frontend, stop), beside=watch(frontend))


async def _run(work: Coroutine[Any, Any, None], *, beside: Coroutine[Any, Any, None]) -> None:
    """Do ``work``, and ``beside`` for as long; a failure of either ends both and is raised."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(beside)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


async def _until_drained(frontend: Frontend, stop: asyncio.Event) -> None:
    await stop.wait()
    frontend.draining = True
    await _drain(frontend, timeout_s=frontend.settings.launch.limits.drain_timeout_s)


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, *, host: str, port: int, limits: LimitSpec) -> AsyncIterator[int]:
    """Serve ``app`` while inside; yields the port (of interest when 0 was given)."""
    listener = _listen(host, port)
    quiet_http_noise()
    config = uvicorn.Config(
        app,
        loop="none",
        http=limited(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        bound: int = listener.getsockname()[1]
        _log.info("listening", host=host, port=bound)
        yield bound
    finally:
        server.should_exit = True
        await task


def quiet_http_noise() -> None:
    """Routers probe for HTTP/2 by sending its preface; that is not worth a line each."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, _NoProbes) for known in logger.filters):
        logger.addFilter(_NoProbes())


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: this process has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _NoProbes(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not text.startswith(("Invalid HTTP request", "Unsupported upgrade request"))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections inherit it. Without it the first event of a stream waits behind the headers until
    # the client has acknowledged those, which it delays by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _drain(frontend: Frontend, *, timeout_s: float) -> None:
    """Wait for accepted requests; those that outlast the limit get an error."""
    _log.info("draining", live=len(frontend.live), timeout_s=timeout_s)
    if not await _idle(frontend, timeout_s):
        _log.warning("drain timed out", cut=len(frontend.live))
        for generation in frontend.live:
            generation.cut(Draining(f"this worker ended after draining for {timeout_s:g} s"))
        await _idle(frontend, CLOSE_TIMEOUT_S)


async def _idle(frontend: Frontend, timeout_s: float) -> bool:
    """Wait until no request is live, or until the time is up."""
    deadline = frontend.clock.now() + timeout_s
    while frontend.live and frontend.clock.now() < deadline:
        await asyncio.sleep(DRAIN_POLL_S)
    return not frontend.live
