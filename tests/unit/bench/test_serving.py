"""The arithmetic of the serving benchmark: what is chosen, what is compared, what is read."""

import pytest

from bench.serving import compare, table
from bench.serving.client import Ask, percentile
from bench.serving.compare import Outcome, Tuned, best, in_turns, judge
from bench.serving.cpu import Usage, others, used
from bench.serving.fleet import System
from bench.serving.stages import TTFT, means_ms, parse
from bench.serving.workloads import Block, Plan


def tuned(chunk: int, gap_ms: float, first_ms: float) -> Tuned:
    return Tuned(threads=1, chunk_tokens=chunk, gap_p99_ms=gap_ms, first_ms=first_ms)


def block(first_s: float, gap_s: float) -> Block:
    return Block(first_s=[first_s], gaps_s=[gap_s] * 3, tokens=4, seconds=2.0)


def test_the_smoothest_chunk_wins_among_those_that_are_not_much_slower() -> None:
    slow, smooth, fast = tuned(32, 50, 1260), tuned(64, 80, 1240), tuned(512, 900, 1000)
    assert best([slow, smooth, fast]) is smooth
    assert best([slow]) is slow


def test_goals_are_medians_of_rounds_side_by_side() -> None:
    outcome = Outcome(
        {
            "PD": [block(0.110, 0.02), block(0.220, 0.02), block(0.105, 0.1)],
            "one": [block(0.100, 0.06), block(0.200, 0.05), block(0.100, 0.1)],
        }
    )
    found = judge({"single": outcome, "long": outcome}, pd="PD", against="one")
    assert found.added_first_ms == pytest.approx(10.0)
    assert found.added_undisturbed_ms == pytest.approx(6.0)
    assert found.gap_ratio == pytest.approx(2.5)
    assert "| one | +10.0 | +6.0 | 2.50 |" in table.goals([found])


PLAN = Plan(rounds=2, single_rounds=1, tries=2, quiet_cores=0.25)
SYSTEMS = [System(name=name, url="") for name in "ab"]


def machine(monkeypatch: pytest.MonkeyPatch, *cores: float) -> None:
    """What other work takes in each round."""
    left = iter(cores)
    monkeypatch.setattr(compare, "others", lambda *_, seconds: next(left))


async def test_systems_take_turns_in_going_first_and_get_equal_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, int]] = []

    async def workload(system: System, plan: Plan, *, seed: int) -> Block:
        seen.append((system.name, seed))
        return block(1.0, 0.1)

    machine(monkeypatch, 0.1, 0.2)
    outcome = await in_turns(SYSTEMS, PLAN, workload=workload, rounds=2)
    assert seen == [("a", 1000), ("b", 1000), ("b", 2000), ("a", 2000)]
    assert outcome.whole("a").tokens == 8
    assert "| a | 1000.0 | 1000.0 | 1000.0 | 100.0 | 100.0 | 100.0 | 2.0 |" in table.workload(
        outcome
    )


@pytest.mark.parametrize(
    ("cores", "kept"),
    [((0.9, 0.1, 0.2), [2.0, 3.0]), ((0.9, 0.8, 0.1, 0.7), [3.0, 4.0])],
    ids=["enough are quiet", "the quietest of too few"],
)
async def test_disturbed_rounds_are_repeated(
    cores: tuple[float, ...], kept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def workload(system: System, plan: Plan, *, seed: int) -> Block:
        return block(seed / 1000, 0.1)

    machine(monkeypatch, *cores)
    outcome = await in_turns(SYSTEMS, PLAN, workload=workload, rounds=2)
    assert [found.first_s for found in outcome.rounds["a"]] == [[first] for first in kept]
    assert outcome.tried == len(cores)


def test_a_prompt_depends_on_its_seed_alone() -> None:
    one, again, other = (Ask(prompt_tokens=9, answer_tokens=2, seed=s) for s in (1, 1, 2))
    assert one.body() == again.body() != other.body()
    assert len(one.body()["input_ids"]) == 9


def test_means_are_of_what_happened_between_two_readings() -> None:
    text = """
pdcluster_stage_seconds_sum{stage="forward"} 1.5
pdcluster_stage_seconds_count{stage="forward"} 3.0
pdcluster_stage_seconds_bucket{le="0.1",stage="forward"} 1.0
pdcluster_time_to_first_token_seconds_sum 4.0
pdcluster_time_to_first_token_seconds_count 4.0
pdcluster_forward_seconds_sum 9.0
"""
    assert parse(text) == {"forward": (1.5, 3.0), TTFT: (4.0, 4.0)}
    after = {("prefill", "forward"): (1.5, 3.0), ("decode", TTFT): (4.0, 4.0)}
    before = {("prefill", "forward"): (0.5, 1.0), ("decode", TTFT): (4.0, 4.0)}
    means = means_ms(before, after)
    assert means == {("prefill", "forward"): pytest.approx(500.0)}
    assert "| prefill | forward | 500.00 |" in table.breakdown(means, {})


def test_cpu_is_split_into_ours_and_that_of_others() -> None:
    first = Usage(busy=10.0, own=4.0, processes={("p", "scheduler"): 2.0})
    then = Usage(busy=16.0, own=7.0, processes={("p", "scheduler"): 3.0, ("q", "x"): 0.0001})
    assert others(first, then, seconds=2.0) == 1.5
    text = table.processes(used(first, then), requests=10)
    assert "| p | scheduler | 100.0 |" in text
    assert "| q |" not in text


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([1.0], 99) == 1.0
