"""Asks the scheduler of the same pod for its status or metrics, over its status socket.

Used by whoever wants to know: the frontend and the sidecar. One question at a time; an answer that
comes too late can never be taken for the next one's, since a timeout drops the socket.
"""

import asyncio

import zmq
import zmq.asyncio

from pdcluster_worker.core.errors import Unavailable, WireError
from pdcluster_worker.wire import codec
from pdcluster_worker.wire.local import Answer, Ask, MetricsText, Status


class StatusAsker:
    """Lives in one event loop."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket | None = None
        self._turn = asyncio.Lock()

    async def status(self, timeout_s: float) -> Status:
        """Unavailable when the scheduler does not answer in time, WireError for nonsense."""
        answer = await self._ask(Ask(what="status"), timeout_s)
        if not isinstance(answer, Status):
            raise WireError("the scheduler answered something else than its status")
        return answer

    async def metrics(self, timeout_s: float) -> bytes:
        """Prometheus text; raises like `status`."""
        answer = await self._ask(Ask(what="metrics"), timeout_s)
        if not isinstance(answer, MetricsText):
            raise WireError("the scheduler answered something else than its metrics")
        return answer.text

    def close(self) -> None:
        """Drop the socket. Idempotent."""
        self._drop()
        self._context.term()

    async def _ask(self, question: Ask, timeout_s: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                try:
                    return await self._exchange(codec.write(question))
                except BaseException:
                    self._drop()
                    raise
        except TimeoutError as error:
            raise Unavailable(f"the scheduler did not answer in {timeout_s:g} s") from error
        except zmq.ZMQError as error:
            raise Unavailable(f"the scheduler cannot be asked: {error}") from error

    async def _exchange(self, question: bytes) -> Answer:
        if self._socket is None:
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.linger = 0
            self._socket.set(zmq.MAXMSGSIZE, codec.LOCAL_BYTES_MAX)
            self._socket.connect(self._address)
        # Like a REQ socket, which a ROUTER at the other end expects: an empty frame first.
        await self._socket.send_multipart([b"", question])
        frames = await self._socket.recv_multipart()
        return codec.answer.read(frames[-1])

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
