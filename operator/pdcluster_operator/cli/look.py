"""Subcommands that look at a cluster or end it: status, logs, down, render, version."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import typer
import yaml
from rich.console import Console

import pdcluster_api
from pdcluster_operator.cli.common import (
    FileArgument,
    Output,
    OutputOption,
    control_of,
    find_running,
    print_json,
    read_manifest,
)
from pdcluster_operator.cli.tail import follow, tail
from pdcluster_operator.cli.view import render_snapshot
from pdcluster_operator.clock import pause
from pdcluster_operator.errors import LocalRunError, OperatorError
from pdcluster_operator.plan import Create, PoolTarget, plan_pool
from pdcluster_operator.render import Placement, pod_hash, render_pod
from pdcluster_operator.spec import PDCluster

_POLL_S: Final = 0.1
_PARTS: Final = ("smg", "torch", "nixl-cu12", "kubernetes")

NameArgument = Annotated[str, typer.Argument(help="Cluster; not needed when one runs here.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(help="Show a cluster that runs here.")(status)
    app.command(help="Print the logs of a pod, or the names of the pods that have some.")(logs)
    app.command(help="Drain and end a cluster that runs here.")(down)
    app.command(help="Print the pods that a manifest stands for; runs nothing.")(render)
    app.command("version", help="Print versions.")(print_version)


def status(name: NameArgument = "", output: OutputOption = Output.TEXT) -> None:
    """`pdcluster status`."""
    snapshot = control_of(find_running(name)).status()
    if output is Output.JSON:
        print_json(snapshot)
    else:
        Console().print(render_snapshot(snapshot))


def logs(
    pod: Annotated[str, typer.Argument(help="Pod; with or without the cluster's name.")] = "",
    *,
    container: Annotated[str, typer.Option("--container", "-c", help="Container.")] = "",
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on.")] = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster.")] = "",
    lines: Annotated[int, typer.Option("--tail", min=0, help="Last lines; 0 is all.")] = 0,
) -> None:
    """`pdcluster logs`."""
    rundir = find_running(cluster)
    names = sorted(path.name for path in rundir.logs.iterdir() if path.is_dir())
    if not pod:
        typer.echo("\n".join(names))
        return
    full = pod if pod in names else f"{rundir.name}-{pod}"
    if full not in names:
        raise OperatorError(f"no pod {pod}; there are {', '.join(names)}")
    files = {path.stem: path for path in sorted((rundir.logs / full).glob("*.log"))}
    main = "router" if "router" in files else "worker"
    chosen = files.get(container or main)
    if chosen is None:
        raise OperatorError(f"no container {container or main}; there are {', '.join(files)}")
    if following:
        follow(chosen, lines=lines, write=typer.echo)
    else:
        typer.echo(tail(chosen, lines), nl=False)


def down(
    name: NameArgument = "",
    *,
    now: Annotated[bool, typer.Option("--now", help="End without drain.")] = False,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for the end.")] = 120.0,
) -> None:
    """`pdcluster down`."""
    rundir = find_running(name)
    control_of(rundir).down(now=now)
    for _ in range(max(int(wait_s / _POLL_S), 1)):
        if not rundir.held():
            typer.echo(f"{rundir.name} ended")
            return
        pause(_POLL_S)
    raise LocalRunError(f"{rundir.name} still drains after {wait_s:g} s; `--now` ends it")


def render(file: FileArgument, output: OutputOption = Output.TEXT) -> None:
    """`pdcluster render`."""
    pods = planned_pods(read_manifest(file))
    if output is Output.JSON:
        print_json(pods)
    else:
        typer.echo(yaml.safe_dump_all(pods, sort_keys=False, width=100), nl=False)


def planned_pods(cluster: PDCluster) -> list[dict[str, Any]]:
    """Return the Pods that a new cluster starts with."""
    return [
        render_pod(cluster, step.role, index=step.index, placement=Placement())
        for role, replicas in cluster.spec.replicas().items()
        for step in plan_pool(PoolTarget(role, replicas, pod_hash(cluster, role)), ())
        if isinstance(step, Create)
    ]


def print_version(output: OutputOption = Output.TEXT) -> None:
    """`pdcluster version`."""
    versions = {"pdcluster": pdcluster_api.__version__}
    for part in _PARTS:
        try:
            versions[part] = version(part)
        except PackageNotFoundError:
            versions[part] = "not installed"
    if output is Output.JSON:
        print_json(versions)
    else:
        typer.echo("\n".join(f"{name} {number}" for name, number in versions.items()))
