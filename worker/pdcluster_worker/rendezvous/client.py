"""Asynchronous rendezvous client for a loop that must never wait for HTTP.

`submit` hands a call to an I/O thread and returns an id at once; `results` returns what has ended.
Every failure is a WorkerError:

    PeerLost      the address does not answer in time, refuses or breaks the connection
    Unavailable   the server answers 503: its worker is not complete yet
    PeerRefused   the server refuses (400, 401, 404, 409, ...); its reason is in the message
    WireError     the answer is too large or is no topology

A registration is retried with growing, jittered delays while the failure may pass (the first two
kinds), `REGISTER_TRIES_MAX` times. A topology is asked for once: the caller has its own interval.
"""

import asyncio
import itertools
import random
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx
import msgspec

from pdcluster_worker.core.errors import (
    Overloaded,
    PeerLost,
    PeerRefused,
    Unavailable,
    WireError,
    WorkerError,
)
from pdcluster_worker.rendezvous.messages import (
    RANK_PARAMETERS,
    Address,
    Call,
    FetchTopology,
    Register,
    Result,
    Topology,
)

REGISTER_TRIES_MAX: Final = 5
RETRY_DELAY_S: Final = 1.0  # doubles up to the next line
RETRY_DELAY_MAX_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 2 << 20
REASON_CHARS_MAX: Final = 300
JOIN_TIMEOUT_S: Final = 2.0


class RendezvousClient:
    """One I/O thread. All methods are called from one thread (the loop's) and none blocks."""

    def __init__(
        self,
        *,
        timeout_s: float,
        token: str = "",
        calls_max: int = 256,
        wake: Callable[[], None] = lambda: None,
        retry_delay_s: float = RETRY_DELAY_S,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``timeout_s`` bounds one HTTP exchange. ``wake`` runs on the I/O thread."""
        self._timeout_s = timeout_s
        self._token = token
        self._calls_max = calls_max
        self._wake = wake
        self._retry_delay_s = retry_delay_s
        self._jitter = jitter  # in [0, 1)
        self._ids = itertools.count(1)
        self._held = 0  # submitted and not yet returned by `results`
        self._results: deque[Result] = deque()
        # No connection is kept: a restarted peer is met afresh. Plain HTTP needs no certificates.
        # trust_env: a proxy has no place between pods.
        self._http = httpx.AsyncClient(
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=calls_max, max_keepalive_connections=0),
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
        )
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="rendezvous", daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> int:
        """Start a call; its id comes back in a Result. Overloaded when too many are held."""
        if self._held >= self._calls_max:
            raise Overloaded(f"{self._held} rendezvous calls outstanding")
        self._held += 1
        number = next(self._ids)
        self._loop.call_soon_threadsafe(self._start, number, call)
        return number

    def results(self) -> list[Result]:
        """What has ended since the last time, in the order in which it ended."""
        ended: list[Result] = []
        while self._results:
            ended.append(self._results.popleft())
        self._held -= len(ended)
        return ended

    def close(self) -> None:
        """Drop all calls and end the thread. Idempotent; waits at most `JOIN_TIMEOUT_S`."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_TIMEOUT_S)

    # ------------------------------------------------------------------------- I/O thread
    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._shut())
            self._loop.close()

    async def _shut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    def _start(self, number: int, call: Call) -> None:
        task = self._loop.create_task(self._finish(number, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, number: int, call: Call) -> None:
        topology: Topology | None = None
        failure: WorkerError | None = None
        try:
            if isinstance(call, FetchTopology):
                topology = await self._topology(call.address)
            else:
                await self._register(call)
        except WorkerError as error:
            failure = error
        self._results.append(Result(id=number, call=call, topology=topology, error=failure))
        self._wake()

    async def _topology(self, address: Address) -> Topology:
        query = "&".join(f"{name}=-1" for name in RANK_PARAMETERS)
        body = await self._exchange(_Exchange("GET", address, query=query))
        try:
            return msgspec.json.decode(body, type=Topology)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"{_shown(address)} answers no topology: {error}") from error

    async def _register(self, call: Register) -> None:
        put = _Exchange("PUT", call.address, body=msgspec.json.encode(call.row), token=self._token)
        for attempt in itertools.count():
            try:
                await self._exchange(put)
            except Unavailable as error:  # PeerLost and PeerRefused are such too
                if isinstance(error, PeerRefused) or attempt + 1 >= REGISTER_TRIES_MAX:
                    raise
                delay = min(self._retry_delay_s * 2**attempt, RETRY_DELAY_MAX_S)
                await asyncio.sleep(delay * (0.75 + 0.25 * self._jitter()))
            else:
                return

    async def _exchange(self, what: "_Exchange") -> bytes:
        """One request and the body of its 200."""
        peer = _shown(what.address)
        try:
            async with asyncio.timeout(self._timeout_s):  # of everything, also a slow trickle
                status, body = await what.send(self._http)
        except TimeoutError as error:
            raise PeerLost(f"{peer} did not answer in {self._timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise PeerLost(f"{peer} cannot be reached: {reason}") from error
        if status == httpx.codes.SERVICE_UNAVAILABLE:
            raise Unavailable(f"{peer} is not ready: {_reason(body)}")
        if status != httpx.codes.OK:
            raise PeerRefused(f"{peer} says {status}: {_reason(body)}")
        return body


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One HTTP request to a bootstrap server's /route."""

    method: str
    address: Address
    query: str = ""
    body: bytes = b""
    token: str = ""

    async def send(self, client: httpx.AsyncClient) -> tuple[int, bytes]:
        """Status and body."""
        headers = {"Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        url = f"http://{_shown(self.address)}/route?{self.query}"
        async with client.stream(self.method, url, headers=headers, content=self.body) as answer:
            body = bytearray()
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise WireError(f"{url} answers more than {ANSWER_BYTES_MAX} bytes")
            return answer.status_code, bytes(body)


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(body: bytes) -> str:
    return body[:REASON_CHARS_MAX].decode("utf-8", "replace")
