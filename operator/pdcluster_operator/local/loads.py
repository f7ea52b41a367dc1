"""What the workers are doing: asked once a second, turned into rates."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final

import httpx

from pdcluster_api.names import LABEL_ROLE, Role
from pdcluster_operator.clock import Clock
from pdcluster_operator.local.kubelet import PodRecord
from pdcluster_operator.local.pods import worker_address

_CALL_TIMEOUT_S: Final = 1.0
_WINDOW: Final = 6  # samples that a rate is taken over


@dataclass(frozen=True, slots=True)
class Sample:
    """Sums over all workers at one moment. Counters of a restarted worker start again at zero."""

    at_s: float
    requests_done: int
    handoff_bytes: int
    handoff_s: float


class Loads:
    """The latest answer of each worker and the rates over the last seconds."""

    def __init__(self, client: httpx.AsyncClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._latest: dict[str, dict[str, Any]] = {}
        self._roles: dict[str, str] = {}
        self._samples: deque[Sample] = deque(maxlen=_WINDOW)

    async def refresh(self, workers: list[PodRecord]) -> None:
        """Ask every ready worker; one that does not answer is left out."""
        able = [pod for pod in workers if pod.ready]
        answers = await asyncio.gather(*map(self._ask, able))
        self._latest = {
            pod.name: answer
            for pod, answer in zip(able, answers, strict=True)
            if answer is not None
        }
        self._roles = {pod.name: pod.labels[LABEL_ROLE] for pod in able}
        self._samples.append(self._sample())

    def snapshot(self) -> dict[str, Any]:
        """Return stages by role and rates, as `status` shows them."""
        stages: dict[str, Counter[str]] = {}
        for name, status in self._latest.items():
            counts = stages.setdefault(self._roles[name], Counter())
            counts.update({k: int(v) for k, v in (status.get("stages") or {}).items()})
        first, last = (self._samples[0], self._samples[-1]) if self._samples else (None, None)
        rates = {"requestsPerSecond": 0.0, "handoffGBps": 0.0, "handoffBytes": 0, "requests": 0}
        if first is not None and last is not None:
            span = last.at_s - first.at_s
            done = max(last.requests_done - first.requests_done, 0)
            moved = max(last.handoff_bytes - first.handoff_bytes, 0)
            moving_s = max(last.handoff_s - first.handoff_s, 0.0)
            rates = {
                "requestsPerSecond": done / span if span > 0 else 0.0,
                "handoffGBps": moved / moving_s / 1e9 if moving_s > 0 else 0.0,
                "handoffBytes": last.handoff_bytes,
                "requests": last.requests_done,
            }
        return {"stages": {role: dict(counts) for role, counts in stages.items()}, **rates}

    async def _ask(self, pod: PodRecord) -> dict[str, Any] | None:
        url = f"{worker_address(pod)}/v1/loads"
        try:
            answer = await self._client.get(url, params={"include": "all"}, timeout=_CALL_TIMEOUT_S)
            content = answer.json()
        except (httpx.HTTPError, ValueError):
            return None
        status = content.get("pdcluster") if isinstance(content, dict) else None
        return status if isinstance(status, dict) else None

    def _sample(self) -> Sample:
        """Sum over the decode workers, which see every request's end and its hand-off."""
        able = [
            status
            for name, status in self._latest.items()
            if self._roles[name] == Role.DECODE.value
        ]
        return Sample(
            self._clock.now(),
            sum(int(status.get("requests_done", 0)) for status in able),
            sum(int(status.get("handoff_bytes", 0)) for status in able),
            sum(float(status.get("handoff_seconds", 0.0)) for status in able),
        )
