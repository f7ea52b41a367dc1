"""Server-sent events."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

DONE: Final = b"data: [DONE]\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that gathers events would hide the tokens
]


def event(value: Any) -> bytes:
    """One event with JSON data."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream:
    """An ASGI response; its status is sent with the first event."""

    status_code = 200

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _ = scope, receive
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for data in self._events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._events.aclose()
