"""The folder of one local cluster: who runs it, how to reach them, and the logs.

<state dir>/<name>/lock        held (flock) by the process that runs the cluster
<state dir>/<name>/run.json    its process id and control socket, while it runs
<state dir>/<name>/up.log      output of a detached run
<state dir>/<name>/pods/<pod>/<container>.log
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdcluster_operator.errors import AlreadyRunning, NotRunning


@dataclass(frozen=True, slots=True)
class RunInfo:
    """How to reach the process that runs a cluster."""

    pid: int
    control: str  # path of its Unix socket


class RunDir:
    """Paths and ownership of one cluster's folder."""

    def __init__(self, state_dir: Path, name: str) -> None:
        self.path = state_dir / name
        self.name = name

    @property
    def logs(self) -> Path:
        return self.path / "pods"

    @property
    def up_log(self) -> Path:
        return self.path / "up.log"

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder; raises `AlreadyRunning` when another process does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadyRunning(
                    f"{self.name} runs already; see `pdcluster status {self.name}` "
                    f"or end it with `pdcluster down {self.name}`"
                ) from error
            self._set_logs_aside()
            try:
                yield
            finally:
                (self.path / "run.json").unlink(missing_ok=True)

    def _set_logs_aside(self) -> None:
        """Keep the logs of one earlier run, apart from the new ones."""
        previous = self.path / "pods.previous"
        if self.logs.exists():
            shutil.rmtree(previous, ignore_errors=True)
            self.logs.replace(previous)

    def publish(self, control: Path) -> None:
        """Say how to reach this process."""
        document = json.dumps({"pid": os.getpid(), "control": str(control)})
        fresh = self.path / "run.json.new"
        fresh.write_text(document, encoding="utf-8")
        fresh.replace(self.path / "run.json")

    def held(self) -> bool:
        """Say whether a live process owns the folder."""
        with contextlib.suppress(OSError), (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def info(self) -> RunInfo:
        """Return how to reach the owner; raises `NotRunning`."""
        try:
            document = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            info = RunInfo(int(document["pid"]), str(document["control"]))
        except (OSError, ValueError, KeyError) as error:
            raise NotRunning(f"{self.name} does not run here") from error
        if not self.held():
            raise NotRunning(f"{self.name} does not run here any more")
        return info


def running(state_dir: Path) -> list[RunDir]:
    """Return the folders of the clusters that run on this machine."""
    if not state_dir.is_dir():
        return []
    folders = sorted(path for path in state_dir.iterdir() if path.is_dir())
    return [found for path in folders if (found := RunDir(state_dir, path.name)).held()]
