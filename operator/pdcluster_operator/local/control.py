"""How other commands talk to the process that runs a cluster: HTTP over a Unix socket.

    GET  /status              the snapshot that `pdcluster status -o json` prints
    POST /down?now=0|1        drain and end; `now=1` ends without waiting

The socket lies in a folder that only its owner may enter.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pdcluster_operator.errors import NotRunning

_CALL_TIMEOUT_S: Final = 10.0


class ControlServer(uvicorn.Server):
    """Leaves the process's signals to the command that runs the cluster."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def control_server(
    socket: Path, *, snapshot: Callable[[], Awaitable[dict[str, Any]]], stop: Callable[[bool], None]
) -> ControlServer:
    """Return the server; `stop` is told whether to end at once."""

    async def status(_: Request) -> Response:
        return JSONResponse(await snapshot())

    async def down(request: Request) -> Response:
        stop(request.query_params.get("now") == "1")
        return JSONResponse({"stopping": True}, status_code=202)

    routes = [Route("/status", status), Route("/down", down, methods=["POST"])]
    config = uvicorn.Config(
        Starlette(routes=routes),
        uds=str(socket),
        log_level="warning",
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    return ControlServer(config)


class ControlClient:
    """The other end, for commands; blocking."""

    def __init__(self, socket: str) -> None:
        transport = httpx.HTTPTransport(uds=socket)
        self._client = httpx.Client(
            transport=transport, base_url="http://pdcluster", timeout=_CALL_TIMEOUT_S
        )

    def status(self) -> dict[str, Any]:
        """Return the snapshot; raises `NotRunning`."""
        content: dict[str, Any] = self._call("GET", "/status").json()
        return content

    def down(self, *, now: bool) -> None:
        """Ask for the end; raises `NotRunning`."""
        self._call("POST", f"/down?now={int(now)}")

    def _call(self, method: str, path: str) -> httpx.Response:
        try:
            return self._client.request(method, path).raise_for_status()
        except httpx.HTTPError as error:
            raise NotRunning(f"its control socket does not answer: {error}") from error
