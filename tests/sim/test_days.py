"""Random bad days; `pdcluster sim` lives through as many as one likes."""

import time
from dataclasses import replace

import pytest

from pdcluster_worker.sim.command import minimal_story
from pdcluster_worker.sim.run import run
from pdcluster_worker.sim.schedule import Schedule, make_schedule
from pdcluster_worker.sim.story import Story

DAYS = 100  # the same in every run: what broke once stays mended
FRESH_DAYS = 150  # others in every run


def live_through(seed: int) -> None:
    schedule = make_schedule(seed)
    if problem := run(schedule).problem:
        pytest.fail(f"seed {seed}: {problem}\n{minimal_story(schedule)}")


def test_the_usual_days() -> None:
    for seed in range(DAYS):
        live_through(seed)


def test_fresh_days() -> None:
    first = int(time.time())
    print(f"seeds {first} to {first + FRESH_DAYS - 1}")
    for seed in range(first, first + FRESH_DAYS):
        live_through(seed)


def test_a_day_has_enough_going_on() -> None:
    for seed in range(300):
        schedule = make_schedule(seed)
        assert len(schedule.requests) >= 8
        assert len(schedule.faults) >= 2


def test_one_seed_is_one_history() -> None:
    stories = []
    for _ in range(2):
        story = Story(told=True)
        run(make_schedule(7), story)
        stories.append([(line.at, line.host, line.text) for line in story.lines])
    assert stories[0] == stories[1]
    assert len(stories[0]) > 100


def without_faults(seed: int) -> Schedule:
    """Nor workers that do not fit the others, nor rooms used again."""
    schedule = make_schedule(seed)
    requests = tuple(replace(r, room=room) for room, r in enumerate(schedule.requests, start=1))
    nodes = tuple(replace(node, odd="") for node in schedule.nodes)
    return replace(schedule, nodes=nodes, requests=requests, faults=())


@pytest.mark.parametrize("seed", range(10))
def test_a_day_without_faults_serves_what_fits(seed: int) -> None:
    result = run(without_faults(seed))
    assert not result.problem
    # Waiting for a small pool may take too long; nothing else goes wrong.
    assert set(result.outcomes) <= {
        "length", "context_length_exceeded", "bootstrap_timeout", "queue_timeout", "peer_refused",
        "overloaded", "stop",
    }  # fmt: skip
    served = result.outcomes["length"] + result.outcomes["stop"]
    assert served > result.outcomes.total() / 2
