"""Read a log file's end, and go on reading while it grows and rotates."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pdcluster_operator.clock import pause

_POLL_S: Final = 0.2
_FOLLOW_FOR_EVER: Final = -1


def tail(path: Path, lines: int) -> str:
    """Return the last lines; 0 is the whole file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return "".join(text.splitlines(keepends=True)[-lines:])


def follow(
    path: Path,
    *,
    lines: int,
    write: Callable[[str], object],
    polls: int = _FOLLOW_FOR_EVER,
) -> None:
    """Hand over the last lines, then every new one; `polls` bounds it for tests.

    One open file is read from the first to the last of its lines, and only then the one that took
    its name: nothing is lost to a rotation in between.
    """
    file = path.open("rb")
    try:
        *complete, rest = file.read().split(b"\n")
        for line in complete[-lines:]:
            write(line.decode(errors="replace"))
        while polls != 0:
            polls -= 1
            data = file.read()
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                write(line.decode(errors="replace"))
            if data:
                continue
            if path.exists() and path.stat().st_ino != _inode(file.fileno()):
                file.close()
                file = path.open("rb")
            else:
                pause(_POLL_S)
    finally:
        file.close()


def _inode(descriptor: int) -> int:
    return Path(f"/proc/self/fd/{descriptor}").stat().st_ino
