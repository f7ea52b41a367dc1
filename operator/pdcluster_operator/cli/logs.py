"""`pdcluster logs [POD]`: what the containers of a cluster wrote, also after it ended."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from pdcluster_operator.cli.common import Output, OutputOption, find_running
from pdcluster_operator.cli.tail import follow, tail
from pdcluster_operator.errors import OperatorError
from pdcluster_operator.local.kubelet.last_words import read_record
from pdcluster_operator.local.rundir import RunDir
from pdcluster_operator.settings import load_settings

_MAIN: Final = ("worker", "router")  # the container that is meant when none is named


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command(help="Print the logs of a pod, or the names of the pods that have some.")
    def logs(
        pod: Annotated[str, typer.Argument(help="Pod; with or without the cluster's name.")] = "",
        *,
        container: Annotated[str, typer.Option("--container", "-c", help="Container.")] = "",
        following: Annotated[bool, typer.Option("--follow", "-f", help="Go on.")] = False,
        cluster: Annotated[str, typer.Option("--cluster", help="Cluster, also an ended one.")] = "",
        lines: Annotated[int, typer.Option("--tail", min=0, help="Last lines; 0 is all.")] = 0,
        output: OutputOption = Output.TEXT,
    ) -> None:
        rundir = _with_logs(cluster)
        if not pod:
            for name in _folders(rundir):
                typer.echo(name if output is Output.TEXT else json.dumps({"pod": name}))
            return
        path = _log_file(rundir, pod, container)
        write = typer.echo if output is Output.TEXT else _json_writer(path)
        if following:
            follow(path, lines=lines, write=write)
        else:
            for line in tail(path, lines).removesuffix("\n").split("\n"):
                write(line)


def _with_logs(name: str) -> RunDir:
    """Return the cluster of that name if it left logs; else one that runs."""
    if name:
        found = RunDir(load_settings().state_dir, name)
        if found.logs.is_dir():
            return found
    return find_running(name)


def _folders(rundir: RunDir) -> list[str]:
    if not rundir.logs.is_dir():  # it is just starting
        return []
    return sorted(path.name for path in rundir.logs.iterdir() if path.is_dir())


def _log_file(rundir: RunDir, pod: str, container: str) -> Path:
    names = _folders(rundir)
    full = pod if pod in names else f"{rundir.name}-{pod}"
    if full not in names:
        known = f"there are {', '.join(names)}" if names else "none has written anything yet"
        raise OperatorError(f"no pod {pod} in {rundir.name}; {known}")
    files = {path.stem: path for path in sorted((rundir.logs / full).glob("*.log"))}
    wanted = (container,) if container else _MAIN
    found = next((files[name] for name in wanted if name in files), None)
    if found is None:
        known = f"there are {', '.join(files)}" if files else "none has written anything yet"
        raise OperatorError(f"no log of container {wanted[0]} in {full}; {known}")
    return found


def _json_writer(path: Path) -> Callable[[str], None]:
    """Return a function that prints one object per line: a structured line stays structured."""
    where = {"pod": path.parent.name, "container": path.stem}

    def write(line: str) -> None:
        record = read_record(line)
        said = {"text": line} if record is None else {"record": record}
        typer.echo(json.dumps(where | said, ensure_ascii=False))

    return write
