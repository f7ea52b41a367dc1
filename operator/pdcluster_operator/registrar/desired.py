"""The list that the router should have, as a document."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pdcluster_api.names import PORT_BOOTSTRAP, Role
from pdcluster_api.schema import decode, encode, field

WORKERS_MAX: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker as the router should know it."""

    url: str = field("Base URL.", pattern=r"http://[^/\s]{1,200}")
    role: Role = field("prefill or decode.")
    pairing: str = field("KV-layout fingerprint; only equal ones are paired.", pattern=r"\w{1,63}")
    bootstrap_port: int = field(
        "Where decode asks a prefill for its topology.", PORT_BOOTSTRAP, minimum=1, maximum=65535
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All of them, and the model name that the proving request uses."""

    model: str = field("Served name; empty: the router picks.", "")
    workers: tuple[Worker, ...] = field("Every worker that may get requests.", ())

    def __post_init__(self) -> None:
        if len(self.workers) > WORKERS_MAX:
            raise ValueError(f"must be at most {WORKERS_MAX} workers")
        urls = [worker.url for worker in self.workers]
        if len(set(urls)) != len(urls):
            raise ValueError("must name every url once")


def read_desired(value: object) -> Desired:
    """Read a document; raises SchemaError with every problem."""
    return decode(Desired, value)


def write_desired(desired: Desired) -> dict[str, Any]:
    """Return the document."""
    document: dict[str, Any] = encode(desired)
    return document


def load(path: Path) -> Desired:
    """Return what was last saved; empty when there is none or it is damaged."""
    try:
        return read_desired(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # a SchemaError and a JSON error are ValueErrors
        return Desired()


def save(path: Path, desired: Desired) -> None:
    """Replace the file in one step, so that a crash leaves the old or the new list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(write_desired(desired)), encoding="utf-8")
    fresh.replace(path)
