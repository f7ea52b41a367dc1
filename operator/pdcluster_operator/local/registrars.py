"""Keeps the registrars of the local routers told, and asks them whether the routers route."""

from typing import Any, Final

import httpx

from pdcluster_api.names import PORT_REGISTRAR
from pdcluster_operator.clock import Clock
from pdcluster_operator.local.kubelet import PodRecord
from pdcluster_operator.registrar.desired import Desired, write_desired

_CALL_TIMEOUT_S: Final = 3.0
_UNTOLD: Final = "the router is being told about its workers"
_REPEAT_S: Final = 5.0  # the same list again, in case the registrar lost it


class RegistrarClient:
    """One for all routers of a cluster."""

    def __init__(self, client: httpx.AsyncClient, token: str, clock: Clock) -> None:
        self._client = client
        self._headers = {"authorization": f"Bearer {token}"}
        self._clock = clock
        self._told: dict[str, tuple[Desired, int, float]] = {}
        self.status: dict[str, dict[str, Any]] = {}  # router pod's name -> its registrar's status

    async def refresh(self, routers: list[PodRecord], desired: Desired) -> None:
        """Tell each router's registrar the list, or only ask how it stands when that is known."""
        present = {pod.name for pod in routers}
        self.status = {name: status for name, status in self.status.items() if name in present}
        for pod in routers:
            if not pod.status.get("podIP") or not _registrar_started(pod):
                continue
            base = f"http://{pod.status['podIP']}:{PORT_REGISTRAR}"
            now, restarts = self._clock.now(), _restarts(pod)
            told, told_restarts, at = self._told.get(pod.uid, (None, -1, 0.0))
            new = (told, told_restarts) != (desired, restarts)
            stale = new or now - at >= _REPEAT_S
            if new:
                # What it said last was about another list, or about a router that is gone.
                self.status[pod.name] = {"converged": False, "ready": False, "reason": _UNTOLD}
            try:
                answer = await (self._put(base, desired) if stale else self._get(base))
            except (httpx.HTTPError, ValueError) as error:
                self._told.pop(pod.uid, None)
                message = f"the router's registrar does not answer: {error or 'timeout'}"
                self.status[pod.name] = {"converged": False, "ready": False, "reason": message}
                continue
            if stale:
                self._told[pod.uid] = (desired, restarts, now)
            self.status[pod.name] = answer

    async def _put(self, base: str, desired: Desired) -> dict[str, Any]:
        answer = await self._client.put(
            f"{base}/desired",
            json=write_desired(desired),
            headers=self._headers,
            timeout=_CALL_TIMEOUT_S,
        )
        return _content(answer)

    async def _get(self, base: str) -> dict[str, Any]:
        return _content(await self._client.get(f"{base}/status", timeout=_CALL_TIMEOUT_S))


def _content(answer: httpx.Response) -> dict[str, Any]:
    answer.raise_for_status()
    content: dict[str, Any] = answer.json()
    return content


def _registrar_started(pod: PodRecord) -> bool:
    statuses = pod.status.get("containerStatuses", ())
    return any(item["name"] == "registrar" and item["started"] for item in statuses)


def _restarts(pod: PodRecord) -> int:
    return sum(item["restartCount"] for item in pod.status.get("containerStatuses", ()))
