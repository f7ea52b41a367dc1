"""Texts for people: the table of what was hit, the story of a day, the timeline of one request."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline import decode_table, prefill_table
from pdcluster_worker.sim.faults import Cell
from pdcluster_worker.sim.schedule import FaultKind, Schedule
from pdcluster_worker.sim.story import Line

LOOKUPS: Final = {FaultKind.LOOKUP_SLOW, FaultKind.LOOKUP_FAILS, FaultKind.LOOKUP_LOST}


def possible_cells() -> set[Cell]:
    """Every role and stage that each fault can meet a request in."""
    cells: set[Cell] = set()
    for role, table in (("prefill", prefill_table.TABLE), ("decode", decode_table.TABLE)):
        for stage in {stage for stage, _ in table if stage is not None}:
            cells |= {(role, stage.value, kind) for kind in FaultKind}
    return {cell for cell in cells if not _impossible(*cell)}


def _impossible(role: str, stage: str, kind: FaultKind) -> bool:
    if role == "prefill":
        # A prefill looks nobody up, and starts nothing before decode has published.
        return kind in LOOKUPS or (kind is FaultKind.ONE_LEG and stage != Stage.BOOTSTRAP)
    return kind is FaultKind.ONE_LEG and stage not in (
        Stage.HANDSHAKE, Stage.PREALLOC, Stage.TRANSFER, Stage.DEFERRED,
    )  # fmt: skip


def cells_table(hits: Counter[Cell]) -> str:
    """How often each fault met a request in each stage: one row per role and stage."""
    stages = sorted({(role, stage) for role, stage, _ in hits})
    short = [_short(kind) for kind in FaultKind]
    width = max([len(f"{role} {stage}") for role, stage in stages], default=0)
    head = " " * width + "".join(f"{name:>9}" for name in short)
    lines = [head]
    for role, stage in stages:
        counts = "".join(f"{hits[role, stage, kind]:>9}" for kind in FaultKind)
        lines.append(f"{role} {stage}".ljust(width) + counts)
    empty = sorted(possible_cells() - set(hits))
    missed = [f"never hit: {role} {stage}: {kind}" for role, stage, kind in empty]
    legend = ", ".join(f"{_short(kind)}: {kind}" for kind in FaultKind)
    return "\n".join([*lines, *missed, "", legend])


def _short(kind: FaultKind) -> str:
    return kind.name.lower().replace("_", "")[:8]


def story_text(schedule: Schedule, lines: Iterable[Line], *, room: int | None = None) -> str:
    """The day, one line an event; with ``room`` only what concerns one request."""
    nodes = "\n".join(
        f"  {n.host}: {n.pages} pages, {n.rows - 1} rows, chunks of {n.chunk_tokens}, "
        f"{n.running_max} running at most, {n.host_pages} pages on the host"
        for n in schedule.nodes
    )
    shown = (line for line in lines if room is None or line.room in (0, room))
    body = "\n".join(f"{line.at - 1.0:8.3f} s  {line.host:<4} {line.text}" for line in shown)
    return f"seed {schedule.seed}\n{nodes}\n{body}"
