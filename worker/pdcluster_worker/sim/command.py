"""``pdcluster sim``: live through bad days and say what came of them."""

import itertools
import os
import sys
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.sim.report import cells_table, story_text
from pdcluster_worker.sim.run import Result, run
from pdcluster_worker.sim.schedule import Schedule, make_schedule
from pdcluster_worker.sim.shrink import shrink
from pdcluster_worker.sim.story import Story

BATCH: Final = 50  # seeds that a process takes at once


@dataclass(slots=True)
class Sum:
    """Of many days."""

    days: int = 0
    hits: Counter[tuple[str, str, object]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Sum") -> None:
        """Both together."""
        self.days += other.days
        self.hits.update(other.hits)
        self.outcomes.update(other.outcomes)
        self.failed += other.failed


def register(app: typer.Typer) -> None:
    """Add ``pdcluster sim``."""

    @app.command("sim")
    def _sim(
        *,
        seed: Annotated[int | None, typer.Option(help="Live through this one day.")] = None,
        first: Annotated[int, typer.Option(help="First seed of many.")] = 0,
        days: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1000,
        seconds: Annotated[float, typer.Option(help="Stop after this time; 0: never.")] = 0.0,
        trace: Annotated[bool, typer.Option(help="With --seed: print all that happens.")] = False,
        room: Annotated[int | None, typer.Option(help="With --trace: of this room alone.")] = None,
    ) -> None:
        """Simulate prefill and decode workers on bad days; exit code 1 when something broke."""
        if seed is not None:
            raise typer.Exit(one(seed, trace=trace, room=room))
        total = many(first, days, seconds=seconds, jobs=len(os.sched_getaffinity(0)))
        sys.stdout.write(summary(total))
        for bad, problem in total.failed[:3]:
            sys.stdout.write(f"\nseed {bad}: {problem}\n{minimal_story(make_schedule(bad))}\n")
        raise typer.Exit(1 if total.failed else 0)


def one(seed: int, *, trace: bool, room: int | None) -> int:
    """Print one day; the exit code."""
    schedule, story = make_schedule(seed), Story(told=trace)
    result = run(schedule, story)
    if trace:
        sys.stdout.write(story_text(schedule, story.lines, room=room) + "\n")
    sys.stdout.write(f"seed {seed}: {result.problem or 'all is well'}\n")
    if result.problem and not trace:
        sys.stdout.write(minimal_story(schedule) + "\n")
    return 1 if result.problem else 0


def minimal_story(schedule: Schedule) -> str:
    """The story of the shortest day that breaks."""
    small = shrink(schedule, lambda candidate: bool(run(candidate).problem))
    story = Story(told=True)
    run(small, story)
    return story_text(small, story.lines)


def many(first: int, days: int, *, seconds: float, jobs: int) -> Sum:
    """Live through ``days`` days from seed ``first``, or as many as fit into ``seconds``."""
    total, clock = Sum(), SystemClock()
    started = clock.now()
    starts = iter(range(first, first + days, BATCH))
    with ProcessPoolExecutor(jobs) as pool:
        open_: set[Future[Sum]] = set()
        while True:
            late = 0 < seconds < clock.now() - started
            for start in itertools.islice(starts, 0 if late else jobs - len(open_) + 1):
                end = min(start + BATCH, first + days)
                open_.add(pool.submit(batch, start, end))
            if not open_:
                return total
            done, open_ = wait(open_, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())


def batch(start: int, end: int) -> Sum:
    """The days of these seeds."""
    total = Sum()
    for seed in range(start, end):
        result: Result = run(make_schedule(seed))
        total.days += 1
        total.hits.update(result.hits)
        total.outcomes.update(result.outcomes)
        if result.problem:
            total.failed.append((seed, result.problem))
    return total


def summary(total: Sum) -> str:
    """What came of them."""
    ends = ", ".join(f"{name} {count}" for name, count in total.outcomes.most_common())
    return (
        f"{cells_table(total.hits)}\n\n"  # type: ignore[arg-type]
        f"{total.days} days, {len(total.failed)} broken; requests ended: {ends}\n"
    )
