"""The gRPC services of the control port."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from pdcluster_api import __version__
from pdcluster_api.control.v1 import control_pb2 as pb
from pdcluster_api.control.v1 import control_pb2_grpc as pb_grpc
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.rendezvous.view import State, View
from pdcluster_worker.rendezvous.watcher import Watcher
from pdcluster_worker.wire.local import PoolUse, Status

WATCH_INTERVAL_MIN_S: Final = 0.1
WATCH_INTERVAL_MAX_S: Final = 3600.0

_STATES: Final = {
    State.STARTING: pb.WORKER_STATE_STARTING,
    State.SERVING: pb.WORKER_STATE_SERVING,
    State.DRAINING: pb.WORKER_STATE_DRAINING,
    State.HUNG: pb.WORKER_STATE_HUNG,
    State.GONE: pb.WORKER_STATE_GONE,
}


class StatusService(pb_grpc.StatusServicer):
    """`pdcluster.control.v1.Status`."""

    def __init__(self, watcher: Watcher, settings: Settings) -> None:
        self._watcher = watcher
        self._settings = settings

    async def Get(  # noqa: N802 - the name in the proto
        self, request: pb.GetStatusRequest, context: Any
    ) -> pb.WorkerStatus:
        _ = request, context
        return await self._answer()

    async def Watch(  # noqa: N802
        self, request: pb.WatchStatusRequest, context: Any
    ) -> AsyncIterator[pb.WorkerStatus]:
        _ = context
        asked = request.interval_s
        interval = min(max(asked, WATCH_INTERVAL_MIN_S), WATCH_INTERVAL_MAX_S)
        if asked != asked:  # NaN
            interval = WATCH_INTERVAL_MIN_S
        while True:
            yield await self._answer()
            await asyncio.sleep(interval)

    async def _answer(self) -> pb.WorkerStatus:
        return status_message(await self._watcher.view(), self._settings)


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without ``authorization: Bearer <token>``."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

        async def refuse(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            _ = request
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

        self._refusal = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        for key, value in handler_call_details.invocation_metadata:
            given = value if isinstance(value, bytes) else value.encode()
            if key == "authorization" and hmac.compare_digest(given, self._expected):
                return await continuation(handler_call_details)
        return self._refusal


def status_message(view: View, settings: Settings) -> pb.WorkerStatus:
    """The view as the proto has it."""
    status = view.status
    message = pb.WorkerStatus(
        state=_STATES[view.state],
        age_s=view.age_s,
        reason=view.reason,
        identity=pb.Identity(
            pod_name=settings.pod_name,
            pod_uid=settings.pod_uid,
            cluster=settings.launch.cluster,
            role=settings.launch.role.value,
            version=__version__,
        ),
    )
    if status is not None:
        _fill(message, status)
    return message


def _fill(message: pb.WorkerStatus, status: Status) -> None:
    message.identity.instance = status.instance
    message.identity.fingerprint = status.fingerprint
    message.identity.uptime_s = status.uptime_s
    message.stages.extend(
        pb.StageDepth(stage=stage.value, requests=requests)
        for stage, requests in status.stages.items()
        if requests
    )
    message.pages.CopyFrom(_pool(status.pages))
    message.rows.CopyFrom(_pool(status.rows))
    message.loop.CopyFrom(
        pb.Loop(ticks=status.ticks, tick_max_ms=status.tick_max_ms, computing_s=status.computing_s)
    )
    message.totals.CopyFrom(
        pb.Totals(
            requests_done=status.requests_done,
            requests_failed=status.requests_failed,
            prompt_tokens=status.prompt_tokens,
            output_tokens=status.output_tokens,
            handoffs=status.handoffs,
            handoff_bytes=status.handoff_bytes,
            handoff_seconds=status.handoff_seconds,
        )
    )
    message.peers.extend(
        pb.Peer(instance=instance, state=state) for instance, state in status.peers.items()
    )
    message.last_errors.extend(status.last_errors)


def _pool(use: PoolUse) -> pb.PoolUse:
    return pb.PoolUse(total=use.total, free=use.free, held=use.held, quarantined=use.quarantined)
