"""Runs workloads on systems in turns, and tunes the aggregated worker before."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

from bench.serving.cpu import others, usage
from bench.serving.fleet import Model, System, aggregated
from bench.serving.workloads import Block, Plan, interrupted

SLOWER_MAX = 1.25  # of a chunk size's first tokens beside the fastest chunk size's


class Workload(Protocol):
    """One of `bench.serving.workloads`."""

    def __call__(self, system: System, plan: Plan, *, seed: int) -> Awaitable[Block]: ...


@dataclass(slots=True)
class Outcome:
    """One workload on several systems; round i of one is beside round i of the others."""

    rounds: dict[str, list[Block]]
    others_cores: float = 0.0  # that other work kept busy, mean of the rounds
    tried: int = 0  # rounds, of which the quietest are here

    def whole(self, name: str) -> Block:
        """All rounds of a system in one."""
        result = Block()
        for block in self.rounds[name]:
            result.add(block)
        return result

    def beside(
        self, figure: Callable[[Block], float], *, of: str, against: str
    ) -> list[tuple[float, float]]:
        """The two systems' figures, round by round."""
        pairs = zip(self.rounds[of], self.rounds[against], strict=True)
        return [(figure(one), figure(other)) for one, other in pairs]


async def in_turns(
    systems: Sequence[System], plan: Plan, *, workload: Workload, rounds: int
) -> Outcome:
    """Each round on every system, the first of them another each time; all get equal prompts.

    Rounds that other work on the machine disturbed are repeated, at most ``plan.tries`` times as
    many as are wanted; the quietest are kept, whatever they show.
    """
    clock, tried = asyncio.get_running_loop(), list[tuple[float, dict[str, Block]]]()
    for number in range(rounds * plan.tries):
        first, before, begun = number % len(systems), usage(), clock.time()
        found = {}
        for system in (*systems[first:], *systems[:first]):
            found[system.name] = await workload(system, plan, seed=1000 * (number + 1))
        tried.append((others(before, usage(), seconds=clock.time() - begun), found))
        if sum(cores <= plan.quiet_cores for cores, _ in tried) >= rounds:
            break
    kept = sorted(tried, key=lambda entry: entry[0])[:rounds]
    return Outcome(
        rounds={system.name: [found[system.name] for _, found in kept] for system in systems},
        others_cores=fmean(cores for cores, _ in kept),
        tried=len(tried),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One chunk size of an aggregated worker under arriving long prompts."""

    threads: int
    chunk_tokens: int
    gap_p99_ms: float
    first_ms: float  # median, of the long prompts


async def tune(model: Model, plan: Plan, *, threads: int, chunks: Sequence[int]) -> list[Tuned]:
    """Measure each chunk size, each in a worker of its own."""
    found = []
    for index, chunk in enumerate(chunks):
        async with aggregated(model, index=index, threads=threads, chunk_tokens=chunk) as system:
            outcome = await in_turns([system], plan, workload=interrupted, rounds=1)
            block = outcome.whole(system.name)
        found.append(
            Tuned(
                threads=threads, chunk_tokens=chunk, gap_p99_ms=block.gap_ms(99),
                first_ms=block.first_ms(50),
            )
        )  # fmt: skip
    return found


def best(found: Sequence[Tuned]) -> Tuned:
    """The smoothest of those whose first tokens are not much later than the fastest one's."""
    limit = SLOWER_MAX * min(row.first_ms for row in found)
    return min((row for row in found if row.first_ms <= limit), key=lambda row: row.gap_p99_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What the issue asks for, of PD beside one aggregated system."""

    against: str
    added_first_ms: float  # <= 10: median of the differences, request by request
    added_undisturbed_ms: float  # difference of the p10: what other work on the machine left alone
    gap_ratio: float  # >= 2: aggregated's p99 over PD's, median of the rounds


def judge(outcomes: Mapping[str, Outcome], *, pd: str, against: str) -> Goals:
    """Figures of the goals; ``outcomes`` by the workload's name."""
    single = outcomes["single"].beside(lambda b: b.first_ms(50), of=pd, against=against)
    long = outcomes["long"].beside(lambda b: b.gap_ms(99), of=pd, against=against)
    whole = {name: outcomes["single"].whole(name).first_ms(10) for name in (pd, against)}
    return Goals(
        against=against,
        added_first_ms=median(ours - theirs for ours, theirs in single),
        added_undisturbed_ms=whole[pd] - whole[against],
        gap_ratio=median(theirs / ours for ours, theirs in long),
    )
