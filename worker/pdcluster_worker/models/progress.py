"""Progress of long preparations: a callback, and one that draws on a stream.

A terminal gets one line that redraws itself; anything else gets a plain line per tenth, so a log
stays readable.
"""

from collections.abc import Callable
from typing import TextIO

Progress = Callable[[str, int, int], None]
"""``(what, done, total)``; ``done == total`` ends it. Called often, from one thread."""

BAR_CELLS = 24


def silent(*_: object) -> None:
    """Show nothing."""


class StreamProgress:
    """Draws on ``stream``: a bar when it is a terminal, else a line per tenth."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._redraws = stream.isatty()
        self._shown: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Draw when the visible amount changed; cheap otherwise."""
        steps = 100 if self._redraws else 10
        step = steps if done >= total else done * steps // max(total, 1)
        if self._shown.get(what) == step:
            return
        self._shown[what] = step
        percent = step * 100 // steps
        if self._redraws:
            filled = BAR_CELLS * step // steps
            bar = "#" * filled + "." * (BAR_CELLS - filled)
            self._stream.write(f"\r{what} [{bar}] {percent:3d} %")
            if step == steps:
                self._stream.write("\n")
        else:
            self._stream.write(f"{what}: {percent} %\n")
        self._stream.flush()
