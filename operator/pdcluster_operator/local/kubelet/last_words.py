"""Why a run ended, in its own words: the errors it wrote, told apart from whatever it wrote last.

The last line of a log is often about something else: a progress bar, a request that went well. So
each line is judged as it passes by: a structured line by its level, a plain one by how errors
begin, a Python traceback by the line that ends it. Kubernetes has the same place for the result,
the termination message (`terminationMessagePolicy: FallbackToLogsOnError`).
"""

import json
import re
from collections import deque
from signal import Signals
from typing import Any, Final

LINE_BYTES_MAX: Final = 8192  # a longer line is judged by its beginning
WORDS_CHARS_MAX: Final = 1000
SIGNALLED: Final = 128  # exit codes beyond it: the number of a signal, counted from here
_ERRORS_KEPT: Final = 2  # a parent reports its child's death last; the cause is the one before
_ERROR_LEVELS: Final = ("error", "critical", "fatal")
_PLAIN_ERROR: Final = re.compile(
    r"\s*(?i:error|fatal|panic)\b|.{0,80}?\b(?:ERROR|CRITICAL|FATAL)\b|thread '.*' panicked"
)
_LEVELLED: Final = re.compile(r".{0,80}?\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING)\b")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_PROGRESS: Final = re.compile(r"\d\s*%")
_TRACEBACK: Final = "Traceback (most recent call last):"
_DETAILS: Final = ("state", "reason", "error")  # of a structured line, after its event


class LastWords:
    """Reads one run's output as it passes; keeps a few lines, whatever the run writes."""

    def __init__(self) -> None:
        self._rest = b""
        self._errors: deque[str] = deque(maxlen=_ERRORS_KEPT)
        self._plain = ""
        self._in_traceback = False

    def take(self, data: bytes) -> None:
        """Take the next piece of output."""
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        for line in lines:
            self._judge(line[:LINE_BYTES_MAX])

    def errors(self) -> str:
        """Return the last errors, or nothing when the run wrote none."""
        self._flush()
        return "; ".join(self._errors)[:WORDS_CHARS_MAX]

    def any(self) -> str:
        """Return the last errors, else the last line that bears no level: a usage message."""
        return self.errors() or self._plain[:WORDS_CHARS_MAX]

    def _flush(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            self._judge(rest)

    def _judge(self, raw: bytes) -> None:
        line = _COLOUR.sub("", raw.decode(errors="replace")).rstrip()
        if not line:
            return
        if line == _TRACEBACK:
            self._in_traceback = True
        elif self._in_traceback:
            if not line.startswith(" "):
                self._in_traceback = False
                self._keep(line)
        elif (record := read_record(line)) is not None:
            if str(record.get("level", "")).lower() in _ERROR_LEVELS:
                self._keep(record_words(record))
        elif _LEVELLED.match(line):
            return
        elif _PLAIN_ERROR.match(line):
            self._keep(line.strip())
        elif not _PROGRESS.search(line):
            self._plain = line.strip()

    def _keep(self, words: str) -> None:
        if words not in self._errors:
            self._errors.append(words)


def read_record(line: str) -> dict[str, Any] | None:
    """Return a structured log line's fields; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def record_words(record: dict[str, Any]) -> str:
    """Return a structured log line as a person would say it: the event, then what it was about."""
    parts = [str(record.get("event") or record.get("message") or "")]
    parts += [str(record[key]) for key in _DETAILS if record.get(key) not in (None, "")]
    code = record.get("exit_code")
    if isinstance(code, int):
        parts.append(exit_words(code if code >= 0 else SIGNALLED - code))
    if traceback := str(record.get("traceback") or "").strip():
        parts.append(traceback.splitlines()[-1])
    return ": ".join(part for part in parts if part)


def exit_words(code: int) -> str:
    """Return what an exit code says: beyond 128 it is the signal that ended the process."""
    if code > SIGNALLED:
        try:
            return f"killed by {Signals(code - SIGNALLED).name}"
        except ValueError:
            pass
    return f"exit code {code}"
