"""What a worker says of itself: health, model, settings, load, metrics."""

from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from pdcluster_api import __version__
from pdcluster_api.names import Role
from pdcluster_api.schema import encode
from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import BadRequest, Unavailable, WireError
from pdcluster_worker.frontend.errors import json_response
from pdcluster_worker.frontend.frontend import Frontend, Inquiry
from pdcluster_worker.wire.local import Status

STATUS_TIMEOUT_S: Final = 2.0  # a scheduler ticks every few milliseconds
_WAITING: Final = (
    Stage.BOOTSTRAP, Stage.WAITING, Stage.HANDSHAKE, Stage.PREALLOC, Stage.TRANSFER,
    Stage.COMMITTED, Stage.RETRACTED,
)  # fmt: skip
# Parts of /v1/loads; "core" is always there. Those that we have nothing for are accepted.
LOAD_PARTS: Final = ("core", "disagg", "queues", "memory", "spec", "lora", "pdcluster")
_PART_OF: Final = {"disaggregation": "disagg", "queues": "queues", "memory": "memory"}
RUNNING: Final = (Stage.FORWARD, Stage.RUNNING)


async def health(inquiry: Inquiry) -> ASGIApp:
    """200 while requests are taken, else 503 with the reason."""
    inquiry.frontend.check_ready()
    return PlainTextResponse("OK")


async def live(inquiry: Inquiry) -> ASGIApp:
    """200 unless a restart would help, as it would when the scheduler hangs."""
    inquiry.frontend.check_live()
    return PlainTextResponse("OK")


async def models(inquiry: Inquiry) -> ASGIApp:
    """The one model."""
    ready = inquiry.frontend.link.ready
    model = {
        "id": inquiry.frontend.settings.served_name,
        "object": "model",
        "created": inquiry.created,
        "owned_by": "pdcluster",
        "root": inquiry.frontend.settings.launch.model.source,
        "parent": None,
        "max_model_len": None if ready is None else ready.capacity_tokens,
    }
    return json_response({"object": "list", "data": [model]})


async def model_info(inquiry: Inquiry) -> ASGIApp:
    """What routers read to learn which model a worker serves."""
    return json_response(_model(inquiry.frontend))


async def server_info(inquiry: Inquiry) -> ASGIApp:
    """Settings, without secrets, and what the scheduler announced."""
    frontend = inquiry.frontend
    launch = frontend.settings.launch
    ready = frontend.link.ready
    capacity = None if ready is None else ready.capacity_tokens
    state = {"instance": None if ready is None else ready.instance, "draining": frontend.draining}
    return json_response(
        {
            **_model(frontend),
            "version": __version__,
            "disaggregation_mode": _mode(launch.role),
            "disaggregation_bootstrap_port": launch.ports.bootstrap,
            "disaggregation_transfer_backend": launch.transfer.backend,
            "host": frontend.settings.pod_ip,
            "port": launch.ports.http,
            "page_size": launch.engine.page_tokens,
            "max_running_requests": launch.engine.running_max,
            "chunked_prefill_size": launch.engine.chunk_tokens,
            "max_total_num_tokens": launch.engine.kv_pages * launch.engine.page_tokens,
            "context_length": capacity,
            "tp_size": 1,
            "dp_size": 1,
            "internal_states": [state],
            "pdcluster": {"launch": encode(launch), "pod": frontend.settings.pod_name},
        }
    )


async def loads(inquiry: Inquiry) -> ASGIApp:
    """Queue depths and memory, as the scheduler sees them now; ``include`` chooses the parts."""
    frontend = inquiry.frontend
    parts = _parts(inquiry.query.get("include"))
    status = await frontend.link.status(STATUS_TIMEOUT_S)
    load = _load(status, page_tokens=frontend.settings.launch.engine.page_tokens)
    own = {"pdcluster": msgspec.to_builtins(status)} if "pdcluster" in parts else {}
    return json_response(
        {
            "timestamp": inquiry.created,
            "version": __version__,
            "dp_rank_count": 1,
            "loads": [{k: v for k, v in load.items() if _PART_OF.get(k, "core") in parts}],
            **own,
        }
    )


def _parts(include: str | None) -> set[str]:
    wanted = {part.strip() for part in (include or "all").split(",")}
    if unknown := wanted - {*LOAD_PARTS, "all"}:
        allowed = ", ".join((*LOAD_PARTS, "all"))
        message = f"include: {min(unknown)!r} is not allowed, must be of {allowed}"
        raise BadRequest(message, field="include")
    return set(LOAD_PARTS) if "all" in wanted else wanted | {"core"}


async def metrics(inquiry: Inquiry) -> ASGIApp:
    """Prometheus text of both processes; the scheduler's part is missing while it is silent."""
    frontend = inquiry.frontend
    try:
        scheduler: bytes | None = await frontend.link.metrics(STATUS_TIMEOUT_S)
    except (Unavailable, WireError):
        scheduler = None
    text = frontend.metrics.render(scheduler)
    return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


def _model(frontend: Frontend) -> dict[str, Any]:
    model = frontend.settings.launch.model
    return {
        "model_path": model.source,
        "served_model_name": frontend.settings.served_name,
        "tokenizer_path": model.source,
        "is_generation": True,
        "weight_version": "default",
    }


def _mode(role: Role) -> str:
    return "null" if role is Role.AGGREGATED else role.value


def _load(status: Status, *, page_tokens: int) -> dict[str, Any]:
    def count(*stages: Stage) -> int:
        return sum(status.stages.get(stage, 0) for stage in stages)

    running, waiting = count(*RUNNING), count(*_WAITING)
    used = status.pages.total - status.pages.free
    return {
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_total_reqs": sum(status.stages.values()),
        "num_used_tokens": used * page_tokens,
        "max_total_num_tokens": status.pages.total * page_tokens,
        "token_usage": used / max(1, status.pages.total),
        "memory": msgspec.to_builtins(status.pages),
        "disaggregation": {
            "mode": "null" if status.role == Role.AGGREGATED else status.role,
            "prefill_bootstrap_queue_reqs": count(Stage.BOOTSTRAP),
            "prefill_inflight_queue_reqs": count(Stage.INFLIGHT),
            "decode_prealloc_queue_reqs": count(Stage.HANDSHAKE, Stage.PREALLOC),
            "decode_transfer_queue_reqs": count(Stage.TRANSFER),
            "decode_retracted_queue_reqs": count(Stage.RETRACTED),
            "kv_transfer_speed_gb_s": status.handoff_bytes / 1e9 / status.handoff_seconds
            if status.handoff_seconds > 0
            else 0.0,
            "kv_transfer_latency_ms": 1e3 * status.handoff_seconds / max(1, status.handoffs),
        },
        "queues": {
            "waiting": count(Stage.WAITING, Stage.COMMITTED),
            "grammar": 0,
            "paused": 0,
            "retracted": count(Stage.RETRACTED),
        },
    }
