"""Faults that a cold reading of the roles found. Each docstring says what used to happen."""

import contextlib
from typing import Any, ClassVar

import pytest

from pdcluster_worker.core.errors import TransferPeerLost
from pdcluster_worker.core.log import Log
from pdcluster_worker.pipeline.effects import Effect, Emit, Launch, Part, Resolve
from pdcluster_worker.roles.loop import Loop
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.codec import LOCAL_BYTES_MAX
from pdcluster_worker.wire.local import Failed
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import Alive
from tests.unit.pipeline.rig import DecodeRig
from tests.unit.roles.rig import PEER, ExecutorRig, join, write


def test_e39_f49_an_effect_that_raises_costs_nobody_elses_effects() -> None:
    """The outbox is drained already: writes, frames and answers behind it are lost for ever."""
    rig = ExecutorRig()
    too_large = Emit(Failed(rid="a", kind="k", message="x" * (LOCAL_BYTES_MAX + 1)))
    poison = Launch(())
    engine: Any = rig.lists

    def launch(steps: object) -> None:
        raise RuntimeError(f"made up for {steps}")

    engine.launch = launch
    effects: list[Effect] = [too_large, poison, write(7)]
    with pytest.raises(RuntimeError):
        rig.executor.run(effects)
    assert rig.executor.open_writes == 0
    rig.executor.run(rig.listener.outbox)  # the next turn
    assert rig.executor.open_writes == 1


def test_a_peer_that_is_parting_is_not_warmed_up_over_its_old_connection() -> None:
    """`_join` returns early, `_agents` still knows it: the warm-up succeeds, then it is removed."""
    rig = ExecutorRig()
    rig.executor.run([write(7), Part(PEER, PEER), join(), write(0)])
    rig.transport.done |= {1, 2}
    rig.poll()
    warm = ("done", 0, PEER, 10) in rig.told
    assert not warm or PEER in rig.transport.peers, "the table calls it READY; nobody is joined"


def test_a_write_to_a_peer_that_is_not_joined_is_a_lost_peer() -> None:
    """transfer_invalid fails the request as our bug and never starts a new handshake."""
    rig = ExecutorRig()
    rig.executor.run([Part(PEER, PEER), write(7)])
    assert ("failed", 7, PEER, TransferPeerLost.kind) in rig.told


def test_e39_f49_a_notice_that_raises_costs_no_other_notice() -> None:
    """All are drained from the library first: those behind it are lost, their rooms time out."""
    heard: list[int] = []
    written = [Notice(kind=NoticeKind.ROW, writer=PEER, reader="aa" * 16, room=r) for r in (1, 2)]

    class Pipeline:
        last_errors: ClassVar[list[str]] = []

        def notice(self, notice: Notice, now: float) -> None:
            if notice.room == 1 and not heard:
                heard.append(0)
                raise KeyError(f"made up at {now}")
            heard.append(notice.room)

    rig = ExecutorRig()
    inbox = [(PEER, notice.pack()) for notice in written]
    transport: Any = rig.transport
    transport.notices = lambda: [inbox.pop(0) for _ in range(len(inbox))]
    pipeline: Any = Pipeline()
    nothing: Any = None
    loop = Loop(
        rim=rig.executor._rim, pipeline=pipeline, executor=rig.executor, report=nothing,
        waker=nothing, log=Log("test"), instance="aa" * 16,
    )  # fmt: skip
    for _ in range(2):
        with contextlib.suppress(KeyError):
            loop._notices(1.0)
    assert 2 in heard


def test_e66_a_decode_that_was_silent_for_a_minute_is_served_again() -> None:
    """Prefill forgot it; `heard` makes decode READY before its Welcome is read, so it is ignored
    as a repeated answer, no warm-up goes out, and prefill stays WARMING for ever."""
    world = World(4)
    prefill, decode = world.add("prefill", "p"), world.add("decode", "d")
    for room in (1, 2, 3):
        for node in (prefill, decode):
            node.submit(f"r{room}", [room] * 8, room=room, prefill="p")
        world.run(10.0)
        if room == 1:
            decode.frozen_until = world.now + 70.0
            world.run(75.0)
    assert decode.answers["r3"].tokens == oracle([3] * 8, 8)


def test_e53_the_successor_of_a_prefill_is_looked_up_after_a_quiet_minute() -> None:
    """The address was forgotten while the hand-off waited: `watch` finds none, pages stay away."""
    rig = DecodeRig()
    rig.submit("a", 20, room=1)
    rig.reach(pod_uid="pod")
    room = (1, rig.published(1).generation)
    for _ in range(140):
        rig.frame(Alive(rooms=(room,)))
        rig.tick(0.5)
    rig.forget()
    rig.tick(10.0)
    assert rig.pools.pages.count().quarantined == 5
    assert rig.of(Resolve)
