"""`pdcluster up FILE`: run a cluster on this machine."""

import asyncio
import subprocess
import sys
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from pdcluster_operator.cli.common import FileArgument, control_of, read_manifest, wait_until
from pdcluster_operator.cli.view import View, make_view
from pdcluster_operator.errors import LocalRunError, NotRunning
from pdcluster_operator.local.kubelet.last_words import exit_words
from pdcluster_operator.local.rundir import RunDir
from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec import PDCluster

_TAIL_LINES: Final = 20


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command(help="Run a PDCluster on this machine until Ctrl-C.")
    def up(
        file: FileArgument,
        *,
        detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in background.")] = False,
        plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a table.")] = False,
        wait_s: Annotated[
            float, typer.Option("--wait", help="With --detach: seconds to wait for serving.")
        ] = 600.0,
    ) -> None:
        cluster, settings = read_manifest(file), load_settings()
        if detach:
            _detach(file, RunDir(settings.state_dir, cluster.metadata.name), wait_s)
            return
        view = make_view(Console(), plain=plain)
        asyncio.run(run_until_stopped(cluster, settings, view=view))


async def run_until_stopped(cluster: PDCluster, settings: Settings, *, view: View) -> None:
    """Run in the foreground; the first signal drains, the second ends at once."""
    async with Session(cluster, settings) as session:
        stop_on_signals(session, view)
        with view:
            showing = asyncio.create_task(keep_showing(session, view))
            try:
                await session.ended()
            finally:
                showing.cancel()
            view.show(session.snapshot())


def stop_on_signals(session: Session, view: View) -> None:
    """Turn signals into the session's end. Children have sessions of their own: a Ctrl-C on the
    terminal does not reach them, so that they can drain."""

    def stop() -> None:
        again = session.phase == "stopping"
        view.note("ending now" if again else "draining; once more ends at once")
        session.stop(now=again)

    loop = asyncio.get_running_loop()
    for number in (SIGINT, SIGTERM, SIGHUP):
        loop.add_signal_handler(number, stop)


async def keep_showing(session: Session, view: View) -> None:
    """Show every change, at most four times a second, and the load as it moves."""
    while True:
        view.show(session.snapshot())
        await asyncio.sleep(0.25)


def _detach(file: Path, rundir: RunDir, wait_s: float) -> None:
    if rundir.held():
        with rundir.owned():  # raises with the right words
            return
    rundir.path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pdcluster_operator.cli", "up", str(file), "--plain"]
    with rundir.up_log.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    typer.echo(f"{rundir.name}: process {process.pid}, log {rundir.up_log}")
    outcome = _Outcome(process, rundir)
    try:
        if wait_until(outcome.known, wait_s=wait_s):
            return
    except KeyboardInterrupt:
        typer.echo(f"\n{_goes_on(rundir)}", err=True)
        raise
    reason = _snapshot(rundir).get("reason") or "starting"
    raise LocalRunError(
        f"{rundir.name} does not serve after {wait_s:g} s: {reason}\n{_goes_on(rundir)}"
    )


class _Outcome:
    """Says whether a detached start has come to an end; raises when it is a bad one."""

    def __init__(self, process: "subprocess.Popen[bytes]", rundir: RunDir) -> None:
        self._process = process
        self._rundir = rundir

    def known(self) -> bool:
        name, up_log = self._rundir.name, self._rundir.up_log
        if self._process.poll() is not None:
            lines = up_log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            code = self._process.returncode
            said = "\n".join(lines)
            raise LocalRunError(f"{name} ended with {exit_words(code)}; it said\n{said}")
        snapshot = _snapshot(self._rundir)
        if why := snapshot.get("hopeless"):
            raise LocalRunError(f"{why}\n{_goes_on(self._rundir)}")
        if snapshot.get("phase") == "serving":
            typer.echo(f"{name} serves at {snapshot['endpoint']}/v1")
            return True
        return False


def _goes_on(rundir: RunDir) -> str:
    name = rundir.name
    return (
        f"{name} goes on trying in the background; look with `pdcluster status {name}`, "
        f"end it with `pdcluster down {name}`"
    )


def _snapshot(rundir: RunDir) -> dict[str, Any]:
    """Return the snapshot; empty while the control socket is not there yet."""
    try:
        return control_of(rundir).status()
    except NotRunning:
        return {}
