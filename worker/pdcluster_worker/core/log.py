"""Structured logs: one line per event, an English sentence plus fields, as JSON or for a console.

    log = Log("frontend")
    log.info("request ended", rid=rid, stage="running", seconds=1.2)

`Sparse` keeps a repeated event from flooding: it lets one per interval pass and counts the rest.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from pdcluster_worker.core.clock import Clock

ROOT: Final = "pdcluster"
_FIELDS: Final = "pdcluster_fields"  # attribute of a log record
_VALUE_CHARS_MAX: Final = 500  # of one field; a log line never carries a prompt
_KEYS_MAX: Final = 1024  # distinct events that one Sparse remembers


class Log:
    """A named logger whose methods take fields as keywords."""

    def __init__(self, name: str, **fields: object) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")
        self._name = name
        self._fields = fields

    def bind(self, **fields: object) -> "Log":
        """The same logger with more fields on every line."""
        return Log(self._name, **{**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Error with the traceback of the exception being handled."""
        self._write(logging.ERROR, event, fields, traceback=True)

    def _write(
        self, level: int, event: str, fields: Mapping[str, object], *, traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {_FIELDS: {**self._fields, **fields}}
            self._logger.log(level, "%s", event, extra=extra, exc_info=traceback)


@dataclass(slots=True)
class _Seen:
    at: float
    held_back: int


class Sparse:
    """Decides which repeats of an event are written."""

    def __init__(self, clock: Clock, *, interval_s: float = 10.0) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._seen: dict[str, _Seen] = {}

    def due(self, key: str) -> int | None:
        """How many were held back since the last one, or None when this one is held back too."""
        now = self._clock.now()
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _KEYS_MAX:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = _Seen(now, 0)
            return 0
        if now - seen.at < self._interval_s:
            seen.held_back += 1
            return None
        held_back, seen.at, seen.held_back = seen.held_back, now, 0
        return held_back


class _Formatter(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> Mapping[str, Any]:
        found = record.__dict__.get(_FIELDS, {})
        return found if isinstance(found, Mapping) else {}

    def traceback(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(_Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{ROOT}."),
            "event": record.getMessage(),
            **{key: _short(value) for key, value in self.fields(record).items()},
        }
        if traceback := self.traceback(record):
            line["traceback"] = traceback
        return json.dumps(line, ensure_ascii=False)


class ConsoleFormatter(_Formatter):
    """``12:01:02.345 info frontend  request ended  rid=abc seconds=1.2``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone()
        head = f"{time:%H:%M:%S}.{time.microsecond // 1000:03d} {record.levelname.lower():7}"
        fields = "".join(f" {key}={_short(value)}" for key, value in self.fields(record).items())
        name = record.name.removeprefix(f"{ROOT}.")
        line = f"{head} {name:10} {record.getMessage()}{fields}"
        traceback = self.traceback(record)
        return f"{line}\n{traceback}" if traceback else line


def configure(level: str, *, stream: TextIO | None = None, as_json: bool | None = None) -> None:
    """Set up the process's logs once; JSON unless a person is reading on a terminal."""
    target = sys.stderr if stream is None else stream
    json_wanted = not target.isatty() if as_json is None else as_json
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter() if json_wanted else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries; ours have their own level
    logging.getLogger(ROOT).setLevel(level.upper())


def _short(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"
