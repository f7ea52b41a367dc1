"""HTTP/1.1 with limits on how much and for how long a client may send before we know what it wants.

The server library bounds neither: without this one connection could fill the memory with a header
that never ends, or hold a half-sent request for ever. Bodies are bounded where they are read.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.errors import HeadTooLarge, RequestTimeout, WorkerError
from pdcluster_worker.frontend.errors import Api, error_body


def limited(limits: LimitSpec) -> type[asyncio.Protocol]:
    """The protocol class of connections with these limits."""

    class Limited(LimitedProtocol):
        head_bytes_max = limits.request_head_bytes_max
        read_timeout_s = limits.request_read_timeout_s

    return Limited


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Made by the server, which knows the arguments."""

    head_bytes_max: int
    read_timeout_s: float

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head_bytes: int | None = 0  # of the request that is being read; None behind its head
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > self.head_bytes_max:
            self._refuse(HeadTooLarge(f"the headers exceed {self.head_bytes_max} bytes"))

    # Called by the parser.
    def on_message_begin(self) -> None:
        self._expect_more()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._expect_nothing()
        super().on_message_complete()

    def _expect_more(self) -> None:
        self._expect_nothing()
        self._timer = self.loop.call_later(self.read_timeout_s, self._late)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._refuse(RequestTimeout(f"the request did not come in {self.read_timeout_s:g} s"))

    def _refuse(self, error: WorkerError) -> None:
        """Answer, unless an answer has begun, and hang up."""
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(_response(error))
        self.transport.close()


def _response(error: WorkerError) -> bytes:
    body = msgspec.json.encode(error_body(error, Api.NATIVE))
    head = (
        f"HTTP/1.1 {error.code} {HTTPStatus(error.code).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
