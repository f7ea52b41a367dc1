"""Texts for people: the table of what was hit, the story of a day, the timeline of one request."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pdcluster_api.states import Stage
from pdcluster_worker.sim.faults import Cell
from pdcluster_worker.sim.schedule import STAGES_OF, FaultKind, Schedule
from pdcluster_worker.sim.story import Line

LOOKUPS: Final = {FaultKind.LOOKUP_SLOW, FaultKind.LOOKUP_FAILS, FaultKind.LOOKUP_LOST}
ONE_LEGGED: Final = {FaultKind.ONE_LEG, FaultKind.DECLINED, FaultKind.OTHER_PROMPT}
MESSAGES: Final = LOOKUPS | {
    FaultKind.DROP, FaultKind.TWICE, FaultKind.LATE,
    FaultKind.NOTICE_LOST, FaultKind.NOTICE_TWICE, FaultKind.NOTICE_LATE,
    FaultKind.ROW, FaultKind.WRITE_SLOW, FaultKind.WRITE_FAILS, FaultKind.WRITE_FAILS_LATE,
}  # fmt: skip


def possible_cells() -> set[Cell]:
    """Every role and stage that each fault can meet a request in."""
    cells: set[Cell] = set()
    for role, stages in STAGES_OF.items():
        for stage in stages:
            cells |= {(role, stage, kind) for kind in FaultKind}
    return {cell for cell in cells if not _impossible(*cell)}


def _impossible(role: str, stage: str, kind: FaultKind) -> bool:
    if kind is FaultKind.ROW and stage not in (Stage.TRANSFER, Stage.INFLIGHT, Stage.DEFERRED):
        return True
    if role == "aggregated":
        return kind in MESSAGES or kind in (FaultKind.SAME_ROOM, *ONE_LEGGED)
    if role == "prefill":
        # A prefill looks nobody up, and starts nothing before decode has published.
        absent = kind in ONE_LEGGED and stage != Stage.BOOTSTRAP
        return absent or kind in LOOKUPS or kind is FaultKind.STOP
    return kind in ONE_LEGGED and stage not in (
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
