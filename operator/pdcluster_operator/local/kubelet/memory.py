"""Tells a process that the kernel killed for memory from one that somebody else killed.

Both end by SIGKILL. The kernel counts the first kind, for the whole machine; when the count rose
about the time a container died, that is why.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

_COUNTERS: Final = Path("/proc/vmstat")
_KEY: Final = "oom_kill"
_MARK_S: Final = 1.0  # between marks: the count is compared with that of 1 s ago or longer


def oom_kills() -> int:
    """Return how many processes the kernel has killed for memory; 0 where it does not say."""
    try:
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines)
    return next((int(fields[1]) for fields in found if fields[0] == _KEY), 0)


class OomWatch:
    """Remembers the count of a moment ago."""

    def __init__(self, count: Callable[[], int] = oom_kills) -> None:
        self._count = count
        self._marked_at = float("-inf")
        self._before = self._last = count()

    def mark(self, now: float) -> None:
        """Note the count; called often, reads it at most once a second."""
        if now - self._marked_at >= _MARK_S:
            self._marked_at = now
            # The older of two: a death is noticed a little after the kernel has counted it.
            self._before, self._last = self._last, self._count()

    def rose(self) -> bool:
        """Say whether the kernel killed somebody for memory within the last seconds."""
        return self._count() > self._before
