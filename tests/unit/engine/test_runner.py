"""The thread that computes beside the caller."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.ports import BatchResult, SequenceStep, StepResult
from pdcluster_worker.engine.runner import PassRunner

WAIT_S = 10.0


class Gate:
    """A compute function that waits until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.woken = threading.Event()

    def compute(self, batch: Sequence[SequenceStep]) -> tuple[StepResult, ...]:
        assert self.open.wait(WAIT_S)
        if batch[0].key < 0:
            raise ZeroDivisionError("on purpose")
        return tuple(StepResult(key=step.key, token=7) for step in batch)


def one(key: int = 1) -> list[SequenceStep]:
    zeros = np.zeros(1, dtype=np.int64)
    pages = np.zeros(1, dtype=np.int32)
    return [SequenceStep(key=key, tokens=zeros, start=0, pages=pages, sample=None)]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def runner(gate: Gate) -> PassRunner:
    return PassRunner(gate.compute, clock=SystemClock(), wake=gate.woken.set)


def finish(gate: Gate, runner: PassRunner) -> BatchResult:
    gate.open.set()
    assert gate.woken.wait(WAIT_S)
    gate.woken.clear()
    result = runner.poll()
    assert result is not None
    return result


def test_a_pass_runs_beside_the_caller(gate: Gate, runner: PassRunner) -> None:
    assert runner.busy_since() is None
    runner.launch(one())
    assert runner.poll() is None
    assert runner.busy_since() is not None
    result = finish(gate, runner)
    assert result.results == (StepResult(key=1, token=7),)
    assert result.error is None
    assert runner.poll() is None
    assert runner.busy_since() is None
    runner.close()


def test_a_second_launch_is_refused_until_the_first_is_polled(
    gate: Gate, runner: PassRunner
) -> None:
    runner.launch(one())
    with pytest.raises(RuntimeError, match="running"):
        runner.launch(one())
    finish(gate, runner)
    runner.launch(one())
    finish(gate, runner)
    runner.close()


def test_an_error_ends_the_pass_and_not_the_engine(gate: Gate, runner: PassRunner) -> None:
    runner.launch(one(-1))
    result = finish(gate, runner)
    assert result.error == "ZeroDivisionError: on purpose"
    assert result.results == ()
    runner.launch(one())
    assert finish(gate, runner).error is None
    runner.close()


def test_close_waits_for_the_pass_and_may_be_repeated(gate: Gate, runner: PassRunner) -> None:
    runner.launch(one())
    gate.open.set()
    runner.close()
    runner.close()
    assert runner.poll() is not None
    with pytest.raises(RuntimeError, match="closed"):
        runner.launch(one())


def test_an_empty_batch_is_refused(runner: PassRunner) -> None:
    with pytest.raises(ValueError, match="at least one"):
        runner.launch([])
    runner.close()
