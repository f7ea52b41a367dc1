"""The frontend's own metrics, and the scheduler's beside them."""

from pdcluster_api import __version__
from pdcluster_api.metrics import Process
from pdcluster_api.names import Role
from pdcluster_worker.core.metrics import Metrics


class FrontendMetrics:
    """One method for each thing that happens."""

    def __init__(self, role: Role) -> None:
        self._metrics = Metrics(Process.FRONTEND)
        self._live = 0
        self._metrics.set("pdcluster_build_info", 1, version=__version__, role=role.value)
        self._metrics.set("pdcluster_http_live_requests", 0)

    def answered(self, path: str, code: int) -> None:
        """A response has been started. ``path`` is a route's, never what a client sent."""
        self._metrics.add("pdcluster_http_requests_total", path=path, code=str(code))

    def started(self) -> None:
        self._count(1)

    def ended(self, outcome: str, seconds: float) -> None:
        self._count(-1)
        self._metrics.add("pdcluster_generations_total", outcome=outcome)
        self._metrics.observe("pdcluster_request_seconds", seconds)

    def first_token(self, seconds: float) -> None:
        self._metrics.observe("pdcluster_time_to_first_token_seconds", seconds)

    def later_token(self, seconds: float) -> None:
        self._metrics.observe("pdcluster_inter_token_seconds", seconds)

    def render(self, scheduler: bytes | None) -> bytes:
        """Text of one scrape; None when the scheduler did not answer."""
        self._metrics.set("pdcluster_scheduler_up", 0 if scheduler is None else 1)
        return self._metrics.render() + (scheduler or b"")

    def _count(self, change: int) -> None:
        self._live += change
        self._metrics.set("pdcluster_http_live_requests", self._live)
