"""The ASGI application: each endpoint behind one dispatcher.

The dispatcher reads the body within its limit, runs the handler while watching for the client to
leave, turns every WorkerError into the API's error body, and closes whatever the handler started.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from pdcluster_worker.core.errors import WorkerError
from pdcluster_worker.core.log import Log
from pdcluster_worker.frontend.errors import error_response
from pdcluster_worker.frontend.frontend import Frontend, Inquiry
from pdcluster_worker.frontend.routes import ENDPOINTS, Endpoint
from pdcluster_worker.rendezvous.bodies import read_body

_log: Final = Log("frontend")


def create_app(frontend: Frontend) -> Starlette:
    """Everything in `routes.ENDPOINTS`."""
    return Starlette(
        routes=[
            Route(endpoint.path, Dispatcher(frontend, endpoint), methods=list(endpoint.methods))
            for endpoint in ENDPOINTS
        ]
    )


class Dispatcher:
    """The ASGI application of one endpoint."""

    def __init__(self, frontend: Frontend, endpoint: Endpoint) -> None:
        self._frontend = frontend
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        frontend = self._frontend
        request = Request(scope)
        inquiry = Inquiry(
            frontend=frontend,
            body=b"",
            query=request.query_params,
            headers=request.headers,
            received_s=frontend.clock.now(),
            created=int(frontend.clock.wall()),
        )
        counted = _Counted(send, self._count)
        try:
            await self._serve(inquiry, scope, receive, counted)
        except WorkerError as error:
            if counted.started or error.code == 499:
                return  # nobody is there to read it
            if error.code == 500:
                _log.error("request failed", path=self._endpoint.path, reason=error)
            await error_response(error, self._endpoint.api)(scope, receive, counted)
        finally:
            inquiry.close()

    async def _serve(
        self, inquiry: Inquiry, scope: Scope, receive: Receive, send: "_Counted"
    ) -> None:
        async def answer() -> None:
            response = await self._endpoint.handler(inquiry)
            await response(scope, receive, send)

        if not self._endpoint.fields:
            return await answer()
        limit = self._frontend.settings.launch.limits.request_bytes_max
        inquiry.body = await read_body(Request(scope, receive), bytes_max=limit)
        return await _until_gone(answer(), receive)

    def _count(self, code: int) -> None:
        self._frontend.metrics.answered(self._endpoint.path, code)


class _Counted:
    """A ``send`` that knows whether a response was started, and counts its status."""

    def __init__(self, send: Send, count: Callable[[int], None]) -> None:
        self._send = send
        self._count = count
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._count(message["status"])
        await self._send(message)


async def _until_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run ``work`` to its end, or cancel it as soon as the client has left."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait((task, gone))
    if not task.cancelled():
        task.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
