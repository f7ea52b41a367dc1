"""Two gRPC servers: control, and health alone.

The health port is in clear and without a token, for the kubelet's probes. Its services are
"" (this process), "liveness" and "readiness" (the worker, see `view`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pdcluster_api.control.v1 import control_pb2, control_pb2_grpc
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.log import Log
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.rendezvous.status import StatusAsker
from pdcluster_worker.rendezvous.view import Observer, State, View
from pdcluster_worker.rendezvous.watcher import Watcher
from pdcluster_worker.sidecar.service import StatusService, TokenInterceptor

HEALTH_INTERVAL_S: Final = 0.5
STOP_GRACE_S: Final = 2.0
MESSAGE_BYTES_MAX: Final = 1 << 20
CALLS_MAX: Final = 128  # at once, per port
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"

_log: Final = Log("sidecar")


class Reporter(Protocol):
    """grpc_health's asynchronous servicer, which has no type stubs."""

    async def set(self, service: str, status: int) -> None:
        """Change what Check answers and Watch tells."""
        ...

    async def enter_graceful_shutdown(self) -> None:
        """NOT_SERVING for everything, for good."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the servers listen; of interest when 0 was configured."""

    control: int
    health: int


@contextlib.asynccontextmanager
async def sidecar(settings: Settings, clock: Clock) -> AsyncIterator[Ports]:
    """Serve while inside. OSError when a port is taken."""
    limits = settings.launch.limits
    observer = Observer(loop_hang_s=limits.loop_hang_s, compute_hang_s=limits.compute_hang_s)
    path = settings.status_address.removeprefix("ipc://")
    interceptors = [TokenInterceptor(settings.token)] if settings.token else []
    control, probes, reporter = _server(interceptors), _server([]), _reporter()
    with contextlib.closing(StatusAsker(settings.status_address)) as asker:
        watcher = Watcher(asker, observer, clock=clock, socket_path=path)
        control_pb2_grpc.add_StatusServicer_to_server(  # type: ignore[no-untyped-call]
            StatusService(watcher, settings), control
        )
        health_pb2_grpc.add_HealthServicer_to_server(reporter, probes)
        _reflect(control, control_pb2.DESCRIPTOR.services_by_name["Status"].full_name)
        _reflect(probes, health.SERVICE_NAME)
        ports = Ports(
            control=_bind(control, settings.pod_ip, settings.launch.ports.sidecar),
            health=_bind(probes, settings.pod_ip, settings.launch.ports.health),
        )
        await _report(reporter, observer.view(clock.now()))
        await asyncio.gather(control.start(), probes.start())
        _log.info("listening", host=settings.pod_ip, control=ports.control, health=ports.health)
        reporting = asyncio.create_task(_keep_reporting(reporter, watcher))
        try:
            yield ports
        finally:
            reporting.cancel()
            await asyncio.wait((reporting,))
            await reporter.enter_graceful_shutdown()
            await asyncio.gather(control.stop(STOP_GRACE_S), probes.stop(STOP_GRACE_S))


async def _keep_reporting(reporter: Reporter, watcher: Watcher) -> None:
    state: State | None = None
    while True:
        view = await watcher.view()
        if view.state is not state:
            state = view.state
            _log.info("worker", state=state, reason=view.reason)
        await _report(reporter, view)
        await asyncio.sleep(HEALTH_INTERVAL_S)


async def _report(reporter: Reporter, view: View) -> None:
    for service, good in (("", True), (LIVENESS, view.live), (READINESS, view.ready)):
        status = SERVING if good else NOT_SERVING
        await reporter.set(service, status)


def _reporter() -> Any:
    return health.aio.HealthServicer()  # type: ignore[attr-defined]


def _server(interceptors: list[Any]) -> grpc.aio.Server:
    return grpc.aio.server(
        interceptors=interceptors,
        maximum_concurrent_rpcs=CALLS_MAX,
        options=(
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),  # a second sidecar on the port must fail, not share it
        ),
    )


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    shown = f"[{host}]" if ":" in host else host
    try:
        return server.add_insecure_port(f"{shown}:{port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {shown}:{port}") from error


def _reflect(server: grpc.aio.Server, service: str) -> None:
    reflection.enable_server_reflection((service, reflection.SERVICE_NAME), server)
