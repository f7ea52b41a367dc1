"""Asks the scheduler now and then, and whenever a caller wants fresher news."""

import asyncio
import socket
from typing import Final, Protocol

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import Unavailable, WireError
from pdcluster_worker.rendezvous.view import Observer, View
from pdcluster_worker.wire.local import Status

ASK_TIMEOUT_S: Final = 1.0
FRESH_S: Final = 0.05  # callers within this time share one answer
CONNECT_TIMEOUT_S: Final = 0.2


class Asker(Protocol):
    """`rendezvous.status.StatusAsker`."""

    async def status(self, timeout_s: float) -> Status:
        """Unavailable or WireError when there is no answer."""
        ...


class Watcher:
    """Keeps an `Observer` up to date. Lives in one event loop."""

    def __init__(self, asker: Asker, observer: Observer, *, clock: Clock, socket_path: str) -> None:
        self._asker = asker
        self._observer = observer
        self._clock = clock
        self._socket_path = socket_path
        self._asking: asyncio.Task[None] | None = None

    async def view(self) -> View:
        """The state of now: asks unless somebody just did; one question serves all callers."""
        if not 0 <= self._observer.age_s(self._clock.now()) <= FRESH_S:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            await asyncio.shield(self._asking)  # a caller that gives up does not stop the others
        return self._observer.view(self._clock.now())

    async def _ask(self) -> None:
        try:
            status = await self._asker.status(ASK_TIMEOUT_S)
        except (Unavailable, WireError):
            listening = await asyncio.to_thread(_listens, self._socket_path)
            self._observer.silent(listening=listening, now=self._clock.now())
        else:
            self._observer.answered(status, self._clock.now())


def _listens(path: str) -> bool:
    """Whether a process has the socket open: the kernel accepts for it even when it hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(path)
        except (TimeoutError, BlockingIOError):
            return True  # its backlog is full, which a hung process leaves it: EAGAIN on Linux
        except OSError:
            return False
        return True
