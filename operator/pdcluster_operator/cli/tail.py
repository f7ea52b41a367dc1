"""Read a log file's end, and go on reading while it grows and rotates."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pdcluster_operator.clock import pause
from pdcluster_operator.local.kubelet.last_words import read_record, record_words

_POLL_S: Final = 0.2
_FOLLOW_FOR_EVER: Final = -1
_TAIL_BYTES: Final = 4096
_MESSAGE_CHARS_MAX: Final = 160


def tail(path: Path, lines: int) -> str:
    """Return the last lines; 0 is the whole file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    # Not splitlines: a text may hold other separators, and a log line ends with this one only.
    *complete, rest = text.split("\n")
    kept = [*(f"{line}\n" for line in complete), *([rest] if rest else [])]
    return "".join(kept[-lines:])


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


def last_log_line(logs: Path, pod: str, *, container: str = "worker") -> str:
    """Return the last thing a container said; a progress bar's last state counts as a line."""
    path = logs / pod / f"{container}.log"
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n") if line.strip()]
    return _readable(lines[-1])[:_MESSAGE_CHARS_MAX] if lines else ""


def _readable(line: str) -> str:
    """Return a structured log line as a person would say it; any other as it is."""
    record = read_record(line)
    return line if record is None else record_words(record)
