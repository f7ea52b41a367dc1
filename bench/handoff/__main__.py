"""``python -m bench.handoff``: the product's hand-off beside others; see docs/nixl.md.

First table: two real processes per shape; ways interleaved; the receiver spins, so scheduling is
left out. Second table: from prefill's decision to decode's commit through both schedulers, beside
the bare write after the same rest; what is over it is Python waking up, and the pause between two
looks. On a machine with other work use more rounds, and trust ratios rather than microseconds.
Each process is pinned to a core of its own: two that spin on one core would measure its time
slice.
"""

import argparse
import json
from pathlib import Path

from bench.handoff.measure import measure
from bench.handoff.scheduled import COMPUTE_S, measure_scheduled
from bench.handoff.shapes import SHAPES
from bench.handoff.table import markdown, plain, row, scheduled_markdown

RESTED = ("product", "raw block-first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    given = parser.parse_args()
    rows, whole = [], []
    for shape in SHAPES:
        if given.only in shape.name:
            rows.append(row(shape, measure(shape, rounds=given.rounds, seed=given.seed)))
            rested = measure(
                shape, rounds=given.rounds, seed=given.seed, rest_s=COMPUTE_S, only=RESTED
            )
            whole.append((row(shape, rested), measure_scheduled(shape, rounds=given.rounds)))
            print(f"{shape.name} done", flush=True)
    text = markdown(rows) + "\n" + scheduled_markdown(whole)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "handoff.md").write_text(text, encoding="utf-8")
    (given.out / "handoff.json").write_text(json.dumps(plain(rows), indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
