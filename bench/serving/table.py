"""Markdown and JSON of everything that was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.serving.compare import Goals, Outcome, Tuned
from bench.serving.stages import TTFT
from bench.serving.workloads import Block

CPU_MS_MIN = 1.0  # per request; less is no part of the answer

# Which stage of which role is a step of the way to the first token, in order; see ARCHITECTURE.md.
STEPS = (
    ("decode", TTFT),
    ("decode", "handshake"),
    ("decode", "prealloc"),
    ("prefill", "bootstrap"),
    ("prefill", "waiting"),
    ("prefill", "forward"),
    ("prefill", "inflight"),
    ("decode", "transfer"),
    ("decode", "committed"),
    ("aggregated", TTFT),
    ("aggregated", "waiting"),
    ("aggregated", "forward"),
    ("aggregated", "committed"),
)


def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*text, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def tuning(found: Sequence[Tuned], chosen: Sequence[Tuned]) -> str:
    """Chunk sizes; a star is the one that is used."""
    rows = [
        [
            f"{row.threads}",
            f"{row.chunk_tokens}{' *' if row in chosen else ''}",
            f"{row.gap_p99_ms:.0f}",
            f"{row.first_ms:.0f}",
        ]
        for row in found
    ]
    return lines(["threads", "chunk", "ITL p99 ms", "TTFT of long prompts ms"], rows)


def workload(outcome: Outcome) -> str:
    """One line per system."""
    head = ["system", "TTFT p10 ms", "p50", "p99", "ITL p50 ms", "p99", "max", "tokens/s"]
    rows = []
    for name in outcome.rounds:
        block = outcome.whole(name)
        cells = [block.first_ms(q) for q in (10, 50, 99)]
        cells += [block.gap_ms(q) for q in (50, 99, 100)]
        cells.append(block.tokens / block.seconds)
        rows.append([name, *(f"{cell:.1f}" for cell in cells)])
    quiet = f"Others used {outcome.others_cores:.2f} cores; {outcome.tried} rounds tried.\n\n"
    return quiet + lines(head, rows)


def goals(found: Sequence[Goals]) -> str:
    """Both figures that the issue asks for."""
    rows = [
        [
            g.against,
            f"{g.added_first_ms:+.1f}",
            f"{g.added_undisturbed_ms:+.1f}",
            f"{g.gap_ratio:.2f}",
        ]
        for g in found
    ]
    head = ["PD against", "added to TTFT, ms", "to its p10, ms", "ITL p99, aggregated / PD"]
    return lines(head, rows)


def breakdown(means: Mapping[tuple[str, str], float], client_ms: Mapping[str, float]) -> str:
    """Mean milliseconds per request, as client and workers count them."""
    rows = [["client", name, f"{value:.2f}"] for name, value in client_ms.items()]
    rows += [
        [role, what, f"{means[role, what]:.2f}"] for role, what in STEPS if (role, what) in means
    ]
    return lines(["seen by", "what", "mean ms"], rows)


def processes(seconds: Mapping[tuple[str, str], float], *, requests: int) -> str:
    """CPU milliseconds per request, of processes that took part."""
    each = {key: 1e3 * value / requests for key, value in seconds.items()}
    rows = [[*key, f"{value:.1f}"] for key, value in sorted(each.items()) if value >= CPU_MS_MIN]
    return lines(["pod", "process", "CPU ms per request"], rows)


def plain(outcomes: Mapping[str, Outcome], found: Sequence[Goals]) -> dict[str, Any]:
    """For JSON, with every round."""
    return {
        "goals": [asdict(g) for g in found],
        "workloads": {
            name: {"others_cores": outcome.others_cores, "tried": outcome.tried}
            | {
                system: [_figures(block) for block in blocks]
                for system, blocks in outcome.rounds.items()
            }
            for name, outcome in outcomes.items()
        },
    }


def _figures(block: Block) -> dict[str, float]:
    named = {f"first_p{q}_ms": block.first_ms(q) for q in (10, 50, 99)}
    named |= {f"gap_p{q}_ms": block.gap_ms(q) for q in (50, 99, 100)}
    return named | {"tokens": block.tokens, "seconds": block.seconds}
