"""The loop outlives a fault of ours, and gives up on one that does not pass."""

import dataclasses
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pdcluster_worker.core.log import Log
from pdcluster_worker.roles.loop import FAULTS_IN_A_ROW_MAX, Loop
from pdcluster_worker.wire.notice import Notice, NoticeKind
from tests.unit.roles.rig import PEER, ExecutorRig, ManualClock


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


def test_e39_passing_faults_are_told_and_survived() -> None:
    """Trigger: something raises that should not, in the middle of a turn.
    Others: one failed assertion ended the engine and every request on it.
    Here: a turn that raises costs what it touched; the books refuse wrong moves before they change.
    Bound: five such turns in a row end the process, for a fresh one.
    """
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


class Quick:
    """An executor whose writes are settled as soon as one looks."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline, self.open_writes = pipeline, 0
        self.done: list[str] = []

    def run(self, effects: list[str]) -> None:
        self.done += effects
        self.open_writes += effects.count("write")

    def poll_writes(self, now: float) -> int:
        del now
        settled, self.open_writes = self.open_writes, 0
        self.pipeline.outbox += ["answer"] * settled
        return settled


class Outbox:
    """The part of a pipeline that holds effects."""

    def __init__(self, *effects: str) -> None:
        self.outbox = list(effects)

    def drain_outbox(self) -> list[str]:
        drained, self.outbox = self.outbox, []
        return drained


def test_no_answer_waits_for_the_pause() -> None:
    """A write may settle while the next is posted; what follows from it goes out in this turn."""
    pipeline: Any = Outbox("write", "write")
    executor: Any = Quick(pipeline)
    rim: Any = SimpleNamespace(clock=ManualClock())
    nothing: Any = None
    made = Loop(
        rim=rim, pipeline=pipeline, executor=executor, report=nothing, waker=nothing,
        log=Log("test"), instance="i",
    )  # fmt: skip
    made._carry_out()
    assert executor.done == ["write", "write", "answer", "answer"]
    assert pipeline.outbox == []


class Idle:
    """A rim's engine, sockets and pipeline at once: nothing comes in, and calls are remembered."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.outbox: list[object] = []
        self.ended: list[object] = []
        self.prober = self

    def tick(self, *_: float, engine_idle: bool) -> None:
        self.calls.append(f"tick {engine_idle}")

    def notice(self, notice: Notice, now: float) -> None:
        self.calls.append(f"notice {notice.room} {now}")

    def submitted(self) -> tuple[()]:
        return ()

    def asked(self) -> tuple[()]:
        return ()

    def frames(self) -> tuple[()]:
        return ()

    def results(self) -> tuple[()]:
        return ()

    def poll(self) -> None:
        return None

    def busy_since(self) -> None:
        return None


def test_e55_a_turn_hears_every_notice_before_it_looks_at_deadlines() -> None:
    rig, idle = ExecutorRig(), Idle()
    anything: Any = idle
    transport: Any = rig.transport
    written = [Notice(kind=NoticeKind.ROW, writer=PEER, reader="aa" * 16, room=r) for r in (1, 2)]
    transport.notices = lambda: [(PEER, notice.pack()) for notice in written]
    rim = dataclasses.replace(
        rig.executor._rim, engine=anything, local=anything, peers=anything, rendezvous=anything
    )
    executor: Any = rig.executor
    executor._rim = rim
    made = Loop(
        rim=rim, pipeline=anything, executor=executor, report=anything, waker=anything,
        log=Log("test"), instance="aa" * 16,
    )  # fmt: skip
    made.turn(1.0)
    assert idle.calls == ["notice 1 1.0", "notice 2 1.0", "tick True", "tick True"]
