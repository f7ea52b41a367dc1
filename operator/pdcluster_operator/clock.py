"""The only place on the operator's side that reads a clock or sleeps."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of the code sees it."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""

    def wall(self) -> datetime:
        """Return the date and time, UTC, for people and Kubernetes objects."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for `seconds`."""


class SystemClock:
    """The real one."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def within(seconds: float, work: Awaitable[object]) -> bool:
    """Await `work` for at most `seconds`; returns whether it finished.

    Not `asyncio.wait_for`: in Python 3.11 that can swallow a cancellation that arrives just when
    the work finishes, and a loop built on it then never ends.
    """
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


def pause(seconds: float) -> None:
    """Sleep in a command that runs no event loop."""
    time.sleep(seconds)


def rfc3339(moment: datetime) -> str:
    """Format as Kubernetes does: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
