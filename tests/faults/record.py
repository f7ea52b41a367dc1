"""Keeps what cells have shown, for people and for docs/faults.md: var/faults.json, not asserted.

python -m tests.faults.record    rewrites the tables of docs/faults.md from it
"""

import json
from pathlib import Path
from typing import Any

from tests.faults.cells import MOMENTS, Cell, Fault, matrix
from tests.faults.runner import Outcome

ROOT = Path(__file__).parents[2]
FILE = ROOT / "var" / "faults.json"
PAGE = ROOT / "docs" / "faults.md"
LONG = ", 30 s"
HEADING = "## Last results\n"


def record(outcome: Outcome, *, variant: str = "") -> None:
    """Print a line, and add it to the file; the last run of a cell stays."""
    name = str(outcome.cell) + variant
    row = {
        "passed": not outcome.problems,
        "victim": outcome.victim,
        "seconds": outcome.seconds,
        "tick_ms": outcome.tick_ms,
        "problems": outcome.problems,
    }
    FILE.parent.mkdir(exist_ok=True)
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps({**known, name: row}, indent=1))
    print(f"\n{name}: {row}")  # pytest shows it with -s


def _answers(row: dict[str, Any]) -> str:
    return ", ".join(f"{leg}: {answer}" for leg, answer in row["victim"].items())


def _result(cell: Cell, known: dict[str, dict[str, Any]], *, variant: str = "") -> str:
    if cell.not_applicable:
        return "-"
    row = known.get(f"{cell}{variant}")
    if row is None:
        return "not run"
    if not row["passed"]:
        return "**fails**"
    last = max(s for leg, s in row["seconds"].items() if leg.startswith("victim"))
    return f"{max(last, 0.0):.1f} s"


def tables(known: dict[str, dict[str, Any]]) -> str:
    """By fault and side in rows, by stage in columns; then how the two legs were answered."""
    names = [moment.name for moment in MOMENTS]
    lines = [f"| fault | hits | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    cells = list(matrix())
    for fault in Fault:
        for role in dict.fromkeys(cell.role for cell in cells):
            own = [c for c in cells if (c.fault, c.role) == (fault, role)]
            for variant in ("", LONG) if fault is Fault.STOP else ("",):
                results = " | ".join(_result(cell, known, variant=variant) for cell in own)
                lines.append(f"| {fault}{variant} | {role} | {results} |")
    lines += ["", "| fault, hits, stage | the two legs of the request that was hit |", "|---|---|"]
    lines += [f"| {c} | {_answers(known[str(c)])} |" for c in cells if str(c) in known]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the page from the heading on."""
    head = PAGE.read_text().partition(HEADING)[0]
    PAGE.write_text(head + HEADING + "\n" + tables(json.loads(FILE.read_text())))


if __name__ == "__main__":
    main()
