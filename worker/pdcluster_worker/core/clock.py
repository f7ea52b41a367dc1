"""The only place of the worker that reads a clock or sleeps."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the code sees it; the simulator has a virtual one."""

    def now(self) -> float:
        """Monotonic seconds; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for people and for logs; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; never called by pure code."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
