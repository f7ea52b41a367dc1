"""The whole hand-off between two real schedulers: prefill decides to send -> decode has committed.

Everything of the product is in it (pipeline, leases, notices, metadata row, the loop's pauses) but
the model, which is replaced by one that answers after a fixed time: any KV shape can be measured.
"""

import asyncio
import contextlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bench.handoff.shapes import Shape
from pdcluster_api.launch import EngineSpec, LaunchSpec, TransferSpec
from pdcluster_api.names import PORT_BOOTSTRAP, Role
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.log import Log, Sparse
from pdcluster_worker.core.ports import BatchResult, ModelShape, SequenceStep, StepResult
from pdcluster_worker.core.process import sleep_precisely
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.link import ZmqLink
from pdcluster_worker.frontend.server import serving
from pdcluster_worker.kv.pool import allocate_pool
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.sending import Sender
from pdcluster_worker.rendezvous.server import BootstrapServer
from pdcluster_worker.roles.build import Loaded, Scheduler, assemble
from pdcluster_worker.roles.sockets import Waker
from pdcluster_worker.wire.local import Failed, Hop, Sampling, Submit

COMPUTE_S = 0.004  # of the stand-in model: decode is then waiting, as it is in life
WARM_UP_ROUNDS = 5
ROWS = 8
TIMEOUT_S = 60.0  # of one shape


class PatientEngine:
    """Answers token 1 after `COMPUTE_S`, touching no memory."""

    def __init__(self, shape: ModelShape, waker: Waker) -> None:
        self.shape = shape
        self._waker = waker
        self._done: BatchResult | None = None
        self._since: float | None = None
        self._clock = SystemClock()

    def launch(self, batch: Sequence[SequenceStep]) -> None:
        results = tuple(
            StepResult(key=step.key, token=None if step.sample is None else 1) for step in batch
        )
        self._since = self._clock.now()
        threading.Timer(
            COMPUTE_S, self._finish, (BatchResult(results=results, seconds=0.0),)
        ).start()

    def _finish(self, result: BatchResult) -> None:
        self._done = result
        self._waker.wake()

    def poll(self) -> BatchResult | None:
        result, self._done = self._done, None
        if result is not None:
            self._since = None
        return result

    def busy_since(self) -> float | None:
        return self._since

    def close(self) -> None:
        return


def _settings(role: Role, address: str, run: Path, shape: Shape) -> Settings:
    launch = LaunchSpec(
        role=role,
        engine=EngineSpec(kv_pages=_pool_pages(shape), chunk_tokens=shape.tokens),
        transfer=TransferSpec(metadata_rows=ROWS),
    )
    return Settings(
        launch=launch, pod_name=role, pod_uid=address, pod_ip=address, token="", token_file=None,
        run_dir=run, run_dir_given=True, cache_dir=run, log_level="error", ucx={},
    )  # fmt: skip


def _scheduler(settings: Settings, shape: Shape) -> Scheduler:
    waker, clock, geometry = Waker(), SystemClock(), shape.geometry
    model = ModelShape(
        layers=geometry.layers, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim, vocab=8,
        context_tokens=1 << 20, eos_token_ids=(0,), dtype=geometry.dtype, identity="bench",
    )  # fmt: skip
    pool = allocate_pool(geometry, pages=_pool_pages(shape), device="cpu")
    loaded = Loaded(shape=model, geometry=geometry, pool=pool, engine=PatientEngine(model, waker))
    made = assemble(settings, loaded, clock=clock, log=Log("bench"), waker=waker)
    _scatter(made, shape)
    return made


def _pool_pages(shape: Shape) -> int:
    """Twice the prompt, since every other page is kept away, and some for the answer."""
    return 2 * shape.pages + 16


def _scatter(made: Scheduler, shape: Shape) -> None:
    """Leave only every other page of the pool free: no run is longer than one page."""
    pages = made.loop.pipeline.pools.pages
    taken = pages.allocate(_pool_pages(shape))
    assert taken is not None
    pages.release(taken[::2].copy())


def _child(settings: Settings, shape: Shape, core: int, pipe: Connection) -> None:
    os.sched_setaffinity(0, {core})
    sleep_precisely()
    made = _scheduler(settings, shape)
    clock, seen = SystemClock(), dict[int, float]()
    send, commit = Sender.last, vars(DecodePipeline)["_commit"]

    def sending(self: Sender, request: Any, *args: Any, **kwargs: Any) -> None:
        seen[request.room] = clock.now()
        send(self, request, *args, **kwargs)

    def committing(self: DecodePipeline, request: Any, now: float) -> None:
        commit(self, request, now)
        seen[request.room] = clock.now()

    made.loop.pipeline.check_idle = lambda: None  # type: ignore[method-assign]  # see `_scatter`
    Sender.last = sending  # type: ignore[method-assign]
    setattr(DecodePipeline, "_commit", committing)  # noqa: B010 - a measuring hook

    def report() -> None:
        pipe.recv()
        pipe.send(seen)
        made.loop.stopping = True

    threading.Thread(target=report, daemon=True).start()
    made.loop.run()
    os._exit(0)


async def _drive(links: list[ZmqLink], host: str, shape: Shape, rounds: int) -> None:
    prompt = np.ones(shape.tokens, "<i4").tobytes()
    for link in links:
        await link.wait_ready()
    for room in range(1, rounds + 1):
        submit = Submit(
            rid=f"r{room}", input_ids=prompt, sampling=Sampling(max_new_tokens=2, temperature=0.0),
            hop=Hop(host=host, port=PORT_BOOTSTRAP, room=room),
        )  # fmt: skip
        for inbox in [link.open(submit) for link in links]:
            message = await inbox.get()
            while not isinstance(message, Failed) and message.finish is None:
                message = await inbox.get()
            if isinstance(message, Failed):
                raise RuntimeError(f"hand-off failed: {message}")


async def _measure(shape: Shape, rounds: int) -> list[float]:
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdc-bench-")))
        links, pipes, hosts = [], [], []
        for index, role in enumerate((Role.PREFILL, Role.DECODE)):
            host = f"127.81.{os.getpid() % 250 + 1}.{index + 1}"
            run = folder / role
            run.mkdir()
            settings = _settings(role, host, run, shape)
            link = ZmqLink(
                requests=settings.requests_address, outputs=settings.outputs_address,
                status=settings.status_address, live_max=8, sparse=Sparse(SystemClock()),
            )  # fmt: skip
            link.start()
            stack.callback(link.close)
            if role is Role.PREFILL:
                server = BootstrapServer(SystemClock(), token="", rooms_max=64)
                limits = settings.launch.limits
                await stack.enter_async_context(
                    serving(server.app(), host=host, port=PORT_BOOTSTRAP, limits=limits)
                )
            ours, theirs = context.Pipe()
            child = context.Process(
                target=_child, args=(settings, shape, cores[index % len(cores)], theirs)
            )
            child.start()
            stack.callback(child.kill)
            links.append(link)
            pipes.append(ours)
            hosts.append(host)
        async with asyncio.timeout(TIMEOUT_S):
            await _drive(links, hosts[0], shape, rounds + WARM_UP_ROUNDS)
        sent, committed = (_ask(pipe) for pipe in pipes)
    return [committed[room] - sent[room] for room in sorted(sent)][WARM_UP_ROUNDS:]


def _ask(pipe: Connection) -> dict[int, float]:
    pipe.send("report")
    seen: dict[int, float] = pipe.recv()
    return seen


def measure_scheduled(shape: Shape, *, rounds: int) -> list[float]:
    """Seconds per hand-off through both schedulers; all processes share the monotonic clock."""
    return asyncio.run(_measure(shape, rounds))
