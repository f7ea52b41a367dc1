"""Subcommands that look at a cluster or end it: status, down, render, version."""

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
    wait_until,
)
from pdcluster_operator.cli.view import render_snapshot
from pdcluster_operator.clock import SystemClock
from pdcluster_operator.errors import LocalRunError
from pdcluster_operator.plan import Create, PoolTarget, plan_pool
from pdcluster_operator.render import Placement, pod_hash, render_pod
from pdcluster_operator.spec import PDCluster

_PARTS: Final = ("smg", "torch", "nixl-cu12", "kubernetes")

NameArgument = Annotated[str, typer.Argument(help="Cluster; not needed when one runs here.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(help="Show a cluster that runs here.")(status)
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


def down(
    name: NameArgument = "",
    *,
    now: Annotated[bool, typer.Option("--now", help="End without drain.")] = False,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for the end.")] = 120.0,
    output: OutputOption = Output.TEXT,
) -> None:
    """`pdcluster down`."""
    rundir = find_running(name)
    control, clock = control_of(rundir), SystemClock()
    pods, begun = [pod["name"] for pod in control.status()["pods"]], clock.now()
    control.down(now=now)
    if not wait_until(lambda: not rundir.held(), wait_s=wait_s):
        raise LocalRunError(f"{rundir.name} still drains after {wait_s:g} s; `--now` ends it")
    if output is Output.JSON:
        seconds = round(clock.now() - begun, 3)
        print_json({"name": rundir.name, "ended": True, "pods": pods, "seconds": seconds})
    else:
        typer.echo(f"{rundir.name} ended")


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
