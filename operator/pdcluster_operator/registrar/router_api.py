"""The router's control API, as far as the registrar uses it.

Facts about smg 1.13 that the registrar is built on (each was measured):
- POST /workers answers 202 and works in the background: a healthy worker is listed and routed to
  within half a second; an address that does not answer is not listed, and the same url again is
  409 WORKER_CREATE_IN_PROGRESS. A listed url again is 409 WORKER_ALREADY_EXISTS, whatever labels.
- DELETE /workers/{id} answers 202; an idle worker is listed as `draining` for 5 s, gets nothing
  new, and its url can be added again only after that.
- Labels come back in the list, together with what the worker's /server_info says.
- A worker that came back under its address turns healthy by itself.
"""

from typing import Any, Final

import httpx

from pdcluster_api.names import Role
from pdcluster_operator.errors import RouterError
from pdcluster_operator.registrar.core import Listed
from pdcluster_operator.registrar.desired import Worker

CALL_TIMEOUT_S: Final = 5.0
PROOF_TIMEOUT_S: Final = 60.0  # a cold worker's first forward pass
PAIRING_LABEL: Final = "pairing_protocol"


class RouterApi:
    """Asynchronous; every call ends within its timeout and raises `RouterError` only."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url = url.rstrip("/")
        self._client = client

    async def workers(self) -> tuple[Listed, ...]:
        """Return the router's list."""
        answer = await self._call("GET", "/workers")
        return tuple(_listed(item) for item in answer.get("workers", ()))

    async def add(self, worker: Worker) -> None:
        """Ask for a worker; it is listed later. Not an error when that is already under way."""
        body: dict[str, Any] = {
            "url": worker.url,
            "worker_type": worker.role.value,
            # Without it the router guesses the engine, and a wrong guess sends no bootstrap room.
            "runtime_type": "sglang",
            "labels": {PAIRING_LABEL: worker.pairing},
        }
        if worker.role is Role.PREFILL:  # the router knocks at the port it is told
            body["bootstrap_port"] = worker.bootstrap_port
        await self._call("POST", "/workers", body, fine=(409,))

    async def remove(self, worker_id: str) -> None:
        """Ask for a worker's removal. Not an error when it is gone."""
        await self._call("DELETE", f"/workers/{worker_id}", fine=(404, 409))

    async def prove(self, model: str) -> None:
        """Send one request of one token the whole way: router, prefill, hand-off, decode."""
        body: dict[str, Any] = {"prompt": "a", "max_tokens": 1, "temperature": 0}
        if model:
            body["model"] = model
        await self._call("POST", "/v1/completions", body, timeout_s=PROOF_TIMEOUT_S)

    async def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        fine: tuple[int, ...] = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        try:
            answer = await self._client.request(
                method, self._url + path, json=body, timeout=timeout_s
            )
        except httpx.HTTPError as error:
            raise RouterError(f"{method} {path}: {error or type(error).__name__}") from error
        if answer.status_code >= 300 and answer.status_code not in fine:
            raise RouterError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        try:
            content = answer.json() if answer.content else {}
        except ValueError as error:
            raise RouterError(f"{method} {path}: not JSON: {answer.text[:100]}") from error
        return content if isinstance(content, dict) else {}


def _listed(item: dict[str, Any]) -> Listed:
    return Listed(
        id=str(item["id"]),
        url=str(item["url"]),
        role=str(item.get("worker_type")),
        pairing=str((item.get("labels") or {}).get(PAIRING_LABEL, "")),
        bootstrap_port=item.get("bootstrap_port"),
        healthy=bool(item.get("is_healthy")),
        draining=item.get("status") == "draining",
    )
