"""What the scheduler says of itself: status, metrics, and one log line per request that ended."""

from collections import Counter
from dataclasses import dataclass

from pdcluster_api.metrics import Process
from pdcluster_api.states import Stage
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.log import Log
from pdcluster_worker.core.metrics import Metrics
from pdcluster_worker.core.ports import BatchResult, Engine, PoolCount
from pdcluster_worker.pipeline.base import Pipeline
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.roles.executor import Executor
from pdcluster_worker.roles.sockets import LocalSockets, PeerSockets
from pdcluster_worker.wire.local import PoolUse, Status

TICK_WINDOW_S = 60.0

_BOOTSTRAP = (Stage.BOOTSTRAP, Stage.HANDSHAKE, Stage.PREALLOC)
_TRANSFER = (Stage.INFLIGHT, Stage.TRANSFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Of this scheduler process."""

    instance: str
    role: str
    cluster: str
    fingerprint: str


class Report:
    """Counts what has happened; answers when asked. Called from the loop only."""

    def __init__(
        self,
        identity: Identity,
        *,
        pipeline: Pipeline,
        executor: Executor,
        engine: Engine,
        clock: Clock,
        log: Log,
    ) -> None:
        self.identity = identity
        self._pipeline = pipeline
        self._executor = executor
        self._engine = engine
        self._clock = clock
        self._log = log
        self._metrics = Metrics(Process.SCHEDULER)
        self._started = clock.now()
        self._ticks = 0
        self._slow: list[tuple[float, float]] = []  # (when, seconds), descending in seconds
        self._told: Counter[tuple[str, str]] = Counter()
        self._done: Counter[str] = Counter()
        self._handoff_bytes = 0

    # ------------------------------------------------------------------------- happenings
    def tick(self, now: float, seconds: float) -> None:
        """One turn of the loop took ``seconds`` of work."""
        self._ticks += 1
        self._metrics.observe("pdcluster_loop_tick_seconds", seconds)
        self._slow = [(at, s) for at, s in self._slow if s > seconds and now - at < TICK_WINDOW_S]
        self._slow.append((now, seconds))

    def forward(self, result: BatchResult, tokens: int) -> None:
        """One forward pass of ``tokens`` tokens ended."""
        self._metrics.observe("pdcluster_forward_seconds", result.seconds)
        self._metrics.observe("pdcluster_forward_tokens", tokens)
        if result.error is not None:
            self._log.error("forward pass failed", error=result.error)

    def ended(self, requests: list[Request]) -> None:
        """Requests have left the pipeline."""
        for request in requests:
            outcome = request.outcome or "failed"
            self._done[outcome] += 1
            self._metrics.add("pdcluster_requests_total", outcome=outcome)
            for stage, seconds in request.times.items():
                self._metrics.observe("pdcluster_stage_seconds", seconds, stage=stage.value)
            self._failure(request)
            self._handoff(request)
            self._line(request, outcome)

    def _failure(self, request: Request) -> None:
        if not request.error_kind:
            return
        if request.failed_in in _BOOTSTRAP:
            self._metrics.add("pdcluster_bootstrap_failed_total")
        elif request.failed_in in _TRANSFER:
            self._metrics.add("pdcluster_transfer_failed_total")

    def _handoff(self, request: Request) -> None:
        handoff = request.handoff
        if handoff is None:
            return
        self._handoff_bytes += handoff.bytes
        if self.identity.role == "prefill":
            self._metrics.observe("pdcluster_handoff_bytes", handoff.bytes)
            assert handoff.seconds is not None
            assert handoff.descriptors is not None
            self._metrics.observe("pdcluster_handoff_seconds", handoff.seconds)
            self._metrics.observe("pdcluster_handoff_descriptors", handoff.descriptors)
            if handoff.seconds > 0:
                speed = handoff.bytes / handoff.seconds / 1e9
                self._metrics.observe("pdcluster_handoff_speed_gb_per_s", speed)
        else:
            self._metrics.observe("pdcluster_handoff_commit_seconds", handoff.total_seconds)

    def _line(self, request: Request, outcome: str) -> None:
        stages = {f"{s.value}_s": round(t, 4) for s, t in request.times.items()}
        failed = {"kind": request.error_kind, "in": request.failed_in} if request.error_kind else {}
        self._log.info(
            "request ended",
            rid=request.rid,
            room=request.room,
            outcome=outcome,
            prompt=len(request.prompt),
            output=len(request.output),
            **failed,
            **stages,
        )

    # ----------------------------------------------------------------------------- answers
    def status(self, now: float) -> Status:
        """The truth of this moment."""
        pipeline = self._pipeline
        busy = self._engine.busy_since()
        pools = pipeline.pools
        return Status(
            instance=self.identity.instance,
            role=self.identity.role,
            cluster=self.identity.cluster,
            fingerprint=self.identity.fingerprint,
            draining=pipeline.draining,
            uptime_s=now - self._started,
            ticks=self._ticks,
            tick_max_ms=self._tick_max_s(now) * 1e3,
            computing_s=0.0 if busy is None else now - busy,
            stages=pipeline.stages(),
            pages=_use(pools.pages.count()),
            rows=_use(pools.rows.count()),
            peers=pipeline.peer_states(),
            requests_done=self._done["finished"],
            requests_failed=sum(self._done.values()) - self._done["finished"],
            prompt_tokens=pipeline.counts["prompt_tokens"],
            output_tokens=pipeline.counts["output_tokens"],
            handoff_bytes=self._handoff_bytes,
            handoff_seconds=pipeline.handoff_seconds,
            handoffs=pipeline.counts["handoffs"],
            last_errors=tuple(pipeline.last_errors),
            refusing=str(pipeline.refusing() or ""),
        )

    def metrics(self, now: float, *, local: LocalSockets, peers: PeerSockets | None) -> bytes:
        """Prometheus text: counters kept as we went, gauges taken now."""
        metrics, pipeline = self._metrics, self._pipeline
        for stage in Stage:
            count = pipeline.stages().get(stage, 0)
            metrics.set("pdcluster_stage_requests", count, stage=stage.value)
        for name, pool in (
            ("pdcluster_kv_pages", pipeline.pools.pages.count()),
            ("pdcluster_metadata_rows", pipeline.pools.rows.count()),
        ):
            metrics.set(name, pool.free, place="free")
            metrics.set(name, pool.held, place="held")
            metrics.set(name, pool.quarantined, place="quarantined")
        states = Counter(pipeline.peer_states().values())
        for state in ("warming", "ready", "lost"):
            metrics.set("pdcluster_peers", states[state], state=state)
        metrics.set("pdcluster_loop_tick_max_seconds", self._tick_max_s(now))
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "retractions"):
            self._catch_up(f"pdcluster_{name}_total", pipeline.counts[name])
        for outcome, count in pipeline.refused.items():
            self._catch_up("pdcluster_requests_total", count, outcome=outcome)
        for kind, count in pipeline.failures.items():
            self._catch_up("pdcluster_request_errors_total", count, kind=kind)
        for kind, count in self._executor.write_errors.items():
            self._catch_up("pdcluster_transfer_errors_total", count, kind=kind)
        for cause, count in pipeline.handshake_failures.items():
            self._catch_up("pdcluster_handshake_failures_total", count, cause=cause)
        dropped = self._executor.dropped + local.dropped
        if peers is not None:
            dropped += peers.dropped
        for stale in ("frames_unexpected", "notices_stale"):
            dropped[stale] += pipeline.counts[stale]
        for cause, count in dropped.items():
            self._catch_up("pdcluster_frames_dropped_total", count, cause=cause)
        return metrics.render()

    def _catch_up(self, name: str, count: int, **labels: str) -> None:
        """Bring a counter to ``count``; it only ever grows."""
        key = (name, "".join(labels.values()))
        self._metrics.add(name, count - self._told[key], **labels)
        self._told[key] = count

    def _tick_max_s(self, now: float) -> float:
        return max((s for at, s in self._slow if now - at < TICK_WINDOW_S), default=0.0)


def _use(count: PoolCount) -> PoolUse:
    return PoolUse(
        total=count.total, free=count.free, held=count.held, quarantined=count.quarantined
    )
