"""`pdcluster up -d`: start the run in the background, and wait until it serves or cannot.

Two of them for one cluster may race. So each start writes a log of its own and looks only at the
run of its own process; the log takes its place as `up.log` when that run owns the folder.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import typer

from pdcluster_operator.cli.common import control_of, wait_until
from pdcluster_operator.errors import LocalRunError, NotRunning
from pdcluster_operator.local.kubelet.last_words import exit_words
from pdcluster_operator.local.rundir import RunDir

_TAIL_LINES: Final = 20


def run_detached(file: Path, rundir: RunDir, *, wait_s: float) -> None:
    """Start it and wait; raises `LocalRunError` with the reason when it does not serve."""
    if rundir.held():
        with rundir.owned():  # raises with the right words
            return
    start = _Start(file, rundir)
    typer.echo(f"{rundir.name}: process {start.process.pid}, log {rundir.up_log}")
    try:
        if wait_until(start.over, wait_s=wait_s):
            return
    except KeyboardInterrupt:
        typer.echo(f"\n{_left(rundir)}", err=True)
        raise
    reason = start.snapshot().get("reason") or "starting"
    raise LocalRunError(
        f"{rundir.name} does not serve after {wait_s:g} s: {reason}\n{_left(rundir)}"
    )


class _Start:
    """One background process and what has become of it."""

    def __init__(self, file: Path, rundir: RunDir) -> None:
        self._rundir = rundir
        rundir.path.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(prefix="up.log.", dir=rundir.path)
        self._log = Path(path)
        command = [sys.executable, "-m", "pdcluster_operator.cli", "up", str(file), "--plain"]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def over(self) -> bool:
        """Say whether it serves; raises `LocalRunError` when it ended or is in vain."""
        name = self._rundir.name
        if self.process.poll() is not None:
            raise LocalRunError(self._ended())
        snapshot = self.snapshot()
        if why := snapshot.get("hopeless"):
            raise LocalRunError(f"{why}\n{_left(self._rundir)}")
        if snapshot.get("phase") == "serving":
            typer.echo(f"{name} serves at {snapshot['endpoint']}/v1")
            return True
        return False

    def snapshot(self) -> dict[str, Any]:
        """Return what our own process says; empty while it does not own the folder yet."""
        try:
            if self._rundir.info().pid != self.process.pid:
                return {}
            if self._log != self._rundir.up_log:
                self._log = self._log.replace(self._rundir.up_log)
            return control_of(self._rundir).status()
        except NotRunning:
            return {}

    def _ended(self) -> str:
        """Return its own error if that is all it said, else how it ended and its last lines."""
        said = self._log.read_text(encoding="utf-8", errors="replace").strip()
        if self._log != self._rundir.up_log:
            self._log.unlink()
        if said.startswith("error: "):
            return said.removeprefix("error: ")
        code = self.process.returncode
        tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
        words = exit_words(code if code >= 0 else 128 - code)
        return f"{self._rundir.name} ended, {words}; it said\n{tail}"


def _left(rundir: RunDir) -> str:
    name = rundir.name
    return (
        f"{name} is left running in the background; look with `pdcluster status {name}`, "
        f"end it with `pdcluster down {name}`"
    )
