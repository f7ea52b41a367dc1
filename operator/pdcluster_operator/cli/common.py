"""What several subcommands share: reading the manifest, finding a running cluster, options."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pdcluster_api.schema import Problem
from pdcluster_operator.clock import SystemClock, pause
from pdcluster_operator.errors import ManifestError, NotRunning, OperatorError
from pdcluster_operator.local.control import ControlClient
from pdcluster_operator.local.rundir import RunDir, running
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec import PDCluster, parse_manifest

_POLL_S: Final = 0.1


class Output(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json")]
FileArgument = Annotated[Path, typer.Argument(help="PDCluster manifest (YAML or JSON).")]
ClusterOption = Annotated[
    str, typer.Option("--cluster", help="Name of the cluster; not needed when one runs here.")
]


def read_manifest(path: Path) -> PDCluster:
    """Read it, or raise `ManifestError` with everything that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problem = Problem("", "cannot be read", str(why or error))
        raise ManifestError(str(path), (problem,)) from error
    return parse_manifest(text, source=str(path))


def find_running(name: str, settings: Settings | None = None) -> RunDir:
    """Return the cluster of that name; without a name the only one that runs here."""
    state_dir = (settings or load_settings()).state_dir
    if name:
        found = RunDir(state_dir, name)
        found.info()
        return found
    candidates = running(state_dir)
    if not candidates:
        raise NotRunning("no cluster runs here; start one with `pdcluster up FILE`")
    if len(candidates) > 1:
        names = ", ".join(one.name for one in candidates)
        raise OperatorError(f"several clusters run here ({names}); say which")
    return candidates[0]


def control_of(rundir: RunDir) -> ControlClient:
    """Return a client of the process that runs the cluster."""
    return ControlClient(rundir.info().control)


def wait_until(check: Callable[[], bool], *, wait_s: float) -> bool:
    """Look again and again until it holds, at most so long; returns whether it does."""
    clock = SystemClock()
    deadline = clock.now() + wait_s
    while not check():
        if not clock.now() < deadline:  # so that a NaN ends the wait, too
            return False
        pause(_POLL_S)
    return True


def print_json(value: Any) -> None:
    """Print for programs."""
    typer.echo(json.dumps(value, indent=2))
