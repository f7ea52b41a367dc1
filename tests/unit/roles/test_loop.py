"""The loop outlives a fault of ours, and gives up on one that does not pass."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from pdcluster_worker.core.log import Log
from pdcluster_worker.roles.loop import FAULTS_IN_A_ROW_MAX, Loop


@dataclass
class Faulty(Loop):
    """Raises in the turns listed."""

    bad: set[int] = field(default_factory=set)
    turns: int = 0

    def turn(self, now: float) -> None:
        self.turns += 1
        if self.turns in self.bad:
            raise KeyError(f"made up at {now}")


class Pipeline:
    """What the guard touches."""

    def __init__(self) -> None:
        self.last_errors: list[str] = []


def loop(bad: set[int]) -> Faulty:
    """A loop whose rim is never touched."""
    nothing: Any = None
    pipeline: Any = Pipeline()
    return Faulty(
        rim=nothing, pipeline=pipeline, executor=nothing, report=nothing, waker=nothing,
        log=Log("test"), instance="i", bad=bad,
    )  # fmt: skip


def turn_often(made: Loop) -> None:
    """20 turns."""
    for turn in range(20):
        made._guarded_turn(float(turn))


def test_passing_faults_are_told_and_survived() -> None:
    made = loop({2, 4, 6, 8, 10, 12, 14})
    turn_often(made)
    assert made.turns == 20
    assert len(made.pipeline.last_errors) == 7
    assert "KeyError" in made.pipeline.last_errors[0]


def test_a_fault_in_every_turn_ends_the_process() -> None:
    made = loop(set(range(3, 100)))
    with pytest.raises(KeyError):
        turn_often(made)
    assert made.turns == 2 + FAULTS_IN_A_ROW_MAX
