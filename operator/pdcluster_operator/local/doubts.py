"""Is a pod that counts as ready really there? Asked when somebody wants to know.

Readiness is what the last probe said, and probes come seconds apart; a worker whose scheduler has
just died is ready until the next one. That is good enough for routing, and wrong for a person who
looks. So `status` asks every ready worker once more. Only a definite refusal counts: a worker that
is too busy to answer in time is ready.
"""

import asyncio
from typing import Any, Final

import httpx

from pdcluster_operator.local.kubelet import PodRecord
from pdcluster_operator.local.pods import worker_address

_CALL_TIMEOUT_S: Final = 0.5
_PATH: Final = "/health"


async def find_doubts(client: httpx.AsyncClient, workers: list[PodRecord]) -> dict[str, str]:
    """Return name -> what speaks against it, of the workers that count as ready."""
    able = [pod for pod in workers if pod.ready]
    answers = await asyncio.gather(*(_ask(client, worker_address(pod)) for pod in able))
    return {pod.name: said for pod, said in zip(able, answers, strict=True) if said}


def doubted(pods: list[dict[str, Any]], doubts: dict[str, str]) -> list[dict[str, Any]]:
    """Return the pods as a person should see them."""
    return [
        pod | {"ready": False, "message": doubts[pod["name"]]} if pod["name"] in doubts else pod
        for pod in pods
    ]


async def _ask(client: httpx.AsyncClient, address: str) -> str:
    try:
        answer = await client.get(f"{address}{_PATH}", timeout=_CALL_TIMEOUT_S)
    except httpx.TimeoutException:
        return ""
    except httpx.HTTPError:
        return "worker: does not answer any more"
    return f"worker: {_PATH} answers {answer.status_code} now" if answer.is_error else ""
