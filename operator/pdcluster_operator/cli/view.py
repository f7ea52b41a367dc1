"""How a running cluster looks: a live table on a terminal, lines otherwise."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pdcluster_api.names import ROLE_ROUTER
from pdcluster_operator.cli.tail import last_log_line

_COLOURS: Final = {
    "serving": "green",
    "starting": "yellow",
    "degraded": "red",
    "stopping": "yellow",
    "ended": "dim",
}

_TEXT_CHARS_MAX: Final = 300  # of one message; all of it is in `-o json`

Snapshot = Mapping[str, Any]


class View(Protocol):
    """Shows snapshots as they come."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, snapshot: Snapshot) -> None:
        """Show this state."""

    def note(self, message: str) -> None:
        """Say something once."""


def make_view(console: Console, *, plain: bool) -> View:
    """Return a live view on a terminal, lines elsewhere."""
    return LineView(console) if plain or not console.is_terminal else LiveView(console)


class LiveView:
    """Redraws in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(render_snapshot(snapshot))

    def note(self, message: str) -> None:
        self._live.console.print(message)


class LineView:
    """Prints a line when something changed that a reader of a log wants to know."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: dict[str, tuple[object, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, snapshot: Snapshot) -> None:
        for pod in snapshot["pods"]:
            state = (pod["phase"], pod["ready"], pod["restarts"])
            ready = "ready" if pod["ready"] else "not ready"
            restarts = f", {pod['restarts']} restarts" if pod["restarts"] else ""
            said = "" if pod["ready"] or pod["loading"] else shortened(pod["message"])
            why = f": {said}" if said else ""
            self._say(pod["name"], state, f"{pod['name']} {pod['phase']}, {ready}{restarts}{why}")
        where = f" at {snapshot['endpoint']}/v1" if snapshot["phase"] == "serving" else ""
        line = f"{snapshot['name']} is {snapshot['phase']}{where}"
        self._say("", (snapshot["phase"],), line)

    def note(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def _say(self, key: str, state: tuple[object, ...], line: str) -> None:
        if self._said.get(key) != state:
            self._said[key] = state
            self.note(line)


def render_snapshot(snapshot: Snapshot) -> RenderableType:
    """Return a snapshot as a table with a headline and the load below."""
    phase = snapshot["phase"]
    head = Text.assemble(
        (snapshot["name"], "bold"),
        "  ",
        (phase, _COLOURS.get(phase, "")),
        f"  {snapshot['endpoint']}/v1" if snapshot["endpoint"] else "",
        f"  model {snapshot['model']}",
    )
    parts: list[RenderableType] = [head, _pods_table(snapshot), *_messages(snapshot)]
    if snapshot["reason"] and phase != "stopping":
        parts.append(Text(shortened(snapshot["reason"]), style="yellow"))
    if phase in ("serving", "degraded"):
        parts.append(Text(load_line(snapshot)))
    return Group(*parts)


def load_line(snapshot: Snapshot) -> str:
    """Return queue depths and rates in one line."""
    load = snapshot["load"]
    queues = [
        f"{role}: "
        + (" ".join(f"{name} {count}" for name, count in stages.items() if count) or "idle")
        for role, stages in sorted(load["stages"].items(), reverse=True)
    ]
    rates = f"{load['requestsPerSecond']:.1f} requests/s"
    moved = f"hand-off {load['handoffGBps']:.2f} GB/s, {load['handoffBytes'] / 1e6:.1f} MB in all"
    return "  |  ".join([*queues, rates, moved])


def shortened(text: str) -> str:
    """Return a text on one line, cut with an ellipsis where it would fill the screen."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_CHARS_MAX else f"{line[: _TEXT_CHARS_MAX - 1]}…"


def _pods_table(snapshot: Snapshot) -> Table:
    rows = [_row(pod) for pod in snapshot["pods"]]
    table = Table(box=None, pad_edge=False)
    for index, title in enumerate(("pod", "address", "state", "restarts")):
        # Nothing may be cut: a name that is not whole cannot be typed.
        width = max([len(title), *(len(row[index]) for row in rows)])
        table.add_column(title, no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _row(pod: Mapping[str, Any]) -> tuple[str, str, Text, str]:
    state = "ready" if pod["ready"] else "not ready"
    if pod["phase"] != "Running":
        state = pod["phase"].lower()
    return pod["name"], pod["ip"], Text(state, _pod_colour(pod)), str(pod["restarts"])


def _messages(snapshot: Snapshot) -> list[RenderableType]:
    """Return why pods are not ready, below the table: a column could not hold it."""
    found: list[RenderableType] = []
    for pod in snapshot["pods"]:
        if pod["ready"]:
            continue
        message = pod["message"]
        if pod["role"] == ROLE_ROUTER:
            # Unready with all containers up: it waits for the workers, which is said below.
            message = message if pod["lastEnd"] or not snapshot["reason"] else ""
        elif pod["loading"]:
            message = last_log_line(Path(snapshot["logs"]), pod["name"]) or message
        if message:
            found.append(Text.assemble((pod["name"], "yellow"), ": ", shortened(message)))
    return found


def _pod_colour(pod: Mapping[str, Any]) -> str:
    return "green" if pod["ready"] else "yellow"
