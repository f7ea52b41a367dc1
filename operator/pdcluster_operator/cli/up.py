"""`pdcluster up FILE`: run a cluster on this machine."""

import asyncio
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Annotated

import typer
from rich.console import Console

from pdcluster_operator.cli.common import FileArgument, read_manifest
from pdcluster_operator.cli.detach import run_detached
from pdcluster_operator.cli.view import View, make_view
from pdcluster_operator.local.rundir import RunDir
from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec import PDCluster


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
            rundir = RunDir(settings.state_dir, cluster.metadata.name)
            run_detached(file, rundir, wait_s=wait_s)
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
