"""What a process asks of the kernel for itself. Linux only; a refusal is not fatal."""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_TIMERSLACK: Final = 29
TIMER_SLACK_NS: Final = 1000  # the default of 50 us would double the loop's shortest sleep


def _prctl(option: int, value: int) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.prctl(option, value, 0, 0, 0) == 0)


def die_with_parent() -> bool:
    """Get SIGKILL when the parent thread ends: a scheduler never outlives its frontend."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def sleep_precisely() -> bool:
    """Let this thread's short sleeps end on time."""
    return _prctl(_PR_SET_TIMERSLACK, TIMER_SLACK_NS)
