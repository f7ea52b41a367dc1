"""How requests end: both legs, at once, with the reason, and nobody else's."""

from collections.abc import Callable

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import Aborted
from pdcluster_worker.sim.node import Node, Sizes
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.sim.world import World
from tests.sim.rig import both, fail_write, pair, run_until, slow_writes, stage_of

SCARCE = Sizes(pages=24, reserved=0, running_max=3)
STAGES = {
    "p": (Stage.BOOTSTRAP, Stage.WAITING, Stage.FORWARD, Stage.INFLIGHT),
    "d": (
        Stage.HANDSHAKE, Stage.PREALLOC, Stage.TRANSFER, Stage.COMMITTED, Stage.RUNNING,
        Stage.RETRACTED,
    ),
}  # fmt: skip


def found(world: World, node: Node, stage: Stage) -> str:
    """The first request that gets there."""

    def first() -> str:
        return next((r.rid for r in node.pipeline.live() if r.stage is stage), "")

    world.run(8.0, until=lambda: bool(first()))
    assert first(), f"nobody was ever in {stage}"
    return first()


@pytest.mark.parametrize(
    ("host", "stage"), [(host, stage) for host, stages in STAGES.items() for stage in stages]
)
def test_e34_an_abort_is_taken_in_every_stage(host: str, stage: Stage) -> None:
    """Trigger: an abort meets a request in any place where one can wait or compute.
    Others: some places were overlooked; the request stayed, or the scheduler span on it.
    Here: one table has a way out of each stage, and one exit leaves every queue.
    Bound: the client is answered in the same turn, the other leg one frame later.
    """
    world, prefill, decode = pair(SCARCE)
    slow_writes(world, 0.05)
    asked = {f"r{room}": [room] * (60 if room == 3 else 12) for room in range(1, 8)}
    for room in range(1, 8):
        both(world, room, asked[f"r{room}"], max_new=36)
    rid = found(world, world.nodes[host], stage)
    world.nodes[host].abort(rid, kind=Aborted.kind)
    assert stage_of(world.nodes[host], rid) in (None, Stage.DEFERRED)
    world.run(0.01)
    assert world.nodes[host].answers[rid].ended
    world.run(0.1)
    assert stage_of(world.nodes["d" if host == "p" else "p"], rid) in (None, Stage.DEFERRED)
    world.run(60.0)
    for other in set(asked) - {rid}:
        assert decode.answers[other].tokens == oracle(asked[other], 36)
    assert prefill.initial()
    assert decode.initial()


def _pass_fails(world: World) -> None:
    world.nodes["p"].engine.fail_next = "made up"


def _write_fails(world: World) -> None:
    fail_write(world, room=1, number=0, after_s=0.05)


def _row_fails(world: World) -> None:
    fail_write(world, room=1, number=3, after_s=0.05)


@pytest.mark.parametrize("fault", [_pass_fails, _write_fails, _row_fails])
def test_e54_decode_hears_at_once_that_prefill_has_failed(fault: Callable[[World], None]) -> None:
    """Trigger: a pass or a write fails on prefill.
    Others: decode was told nothing and waited for its own limit, 300 s.
    Here: prefill sends a refusal with the reason; decode answers with that reason.
    Bound: one frame after prefill knows.
    """
    world, prefill, decode = pair()
    _, warm = both(world, 9, [9] * 8)
    world.run(1.0)
    assert warm.finish
    fault(world)
    first, answer = both(world, 1, [1] * 40)
    world.run(0.6)
    assert first.failed is not None
    assert answer.failed is not None
    assert answer.failed.kind == first.failed.kind
    assert answer.ended_at is not None
    assert first.ended_at is not None
    assert answer.ended_at - first.ended_at < 0.01
    assert prefill.initial()
    assert decode.initial()


@pytest.mark.parametrize("stage", STAGES["p"])
def test_e85_every_way_out_of_prefill_is_told_to_decode(stage: Stage) -> None:
    """Trigger: prefill ends a request early, in any stage.
    Others: some early exits sent nothing, and decode waited for its own limit.
    Here: each row of prefill's table that ends a request tells decode, or remembers the room
    until decode asks for it.
    Bound: one frame; where decode has not published yet, one frame after it has.
    """
    world, prefill, decode = pair(Sizes(pages=24, reserved=0), decode=Sizes())
    slow_writes(world, 0.3)
    both(world, 1, [1] * 60)
    if stage is Stage.BOOTSTRAP:
        run_until(world, prefill, "r1", stage=Stage.INFLIGHT)
    both(world, 2, [2] * 60)
    run_until(world, prefill, "r2", stage=stage)
    prefill.abort("r2", kind=Aborted.kind)
    world.run(0.1)
    ended = decode.answers["r2"].failed
    assert ended is not None
    assert ended.kind == "aborted"
    world.run(3.0)
    assert decode.answers["r1"].tokens == oracle([1] * 60, 8)
    assert prefill.initial()
    assert decode.initial()


def test_e65_a_prefill_that_waits_too_long_ends_its_other_leg_too() -> None:
    """Trigger: a request waits on prefill for longer than a request may.
    Others: limits of requests were not looked at with prefill and decode apart.
    Here: every stage that waits has a limit; past it both legs end, and decode's pages are free.
    Bound: queue_timeout_s, plus one frame.
    """
    limits = LimitSpec(queue_timeout_s=3.0)
    world, prefill, decode = pair(Sizes(pages=24, limits=limits), decode=Sizes())
    slow_writes(world, 8.0)
    _, served = both(world, 1, [1] * 80)
    run_until(world, prefill, "r1", stage=Stage.INFLIGHT)
    first, answer = both(world, 2, [2] * 80)
    world.run(2.9)
    assert not first.ended
    assert not answer.ended
    world.run(0.3)
    assert first.failed is not None
    assert answer.failed is not None
    assert first.failed.kind == answer.failed.kind == "queue_timeout"
    assert decode.pools.pages.count().held == 20
    world.run(10.0)
    assert served.tokens == oracle([1] * 80, 8)
    assert prefill.initial()
    assert decode.initial()


@pytest.mark.parametrize("quiet_s", [10.0, 600.0])
@pytest.mark.parametrize("restarted", [False, True])
def test_e66_the_first_request_after_a_silence_is_served(quiet_s: float, restarted: bool) -> None:
    """Trigger: nothing for minutes, perhaps a restart meanwhile, then a request.
    Others: it failed on a connection that had died in the meantime.
    Here: peers speak though idle, so the dead one is known; whoever is not there is looked up anew.
    Bound: heartbeat_timeout_s until a silent peer is known as lost; then the first request works.
    """
    world, _, decode = pair()
    both(world, 1, [1] * 20)
    world.run(2.0)
    if restarted:
        world.kill("p")
        world.add("prefill", "p")
    world.run(quiet_s)
    first, answer = both(world, 3, [3] * 20)
    world.run(2.0)
    assert first.finish == "length"
    assert answer.tokens == oracle([3] * 20, 8)
    assert decode.initial()


@pytest.mark.parametrize("after_s", [0.0, 0.05])
def test_e87_batches_with_rooms_in_common_never_share_an_answer(after_s: float) -> None:
    """Trigger: a router counts rooms up by one a batch, so that two batches overlap.
    Others: the requests of both batches met in one room; neither the worker nor an answer lived.
    Here: a room in use is refused on each leg, with an error that a router may try again.
    Bound: at once.
    """
    world, prefill, decode = pair()
    earlier = {room: both(world, room, [room] * 20) for room in range(10, 14)}
    world.run(after_s)
    later = {}
    for room in range(12, 16):
        legs = [
            world.nodes[host].submit(f"again{room}", [room + 50] * 20, room=room, prefill="p")
            for host in ("p", "d")
        ]
        later[room] = legs
    world.run(3.0)
    for room, (_, answer) in earlier.items():
        assert answer.tokens == oracle([room] * 20, 8)
    for room, legs in later.items():
        if room in earlier:
            assert all(leg.failed and leg.failed.kind == "room_conflict" for leg in legs)
        else:
            assert legs[1].tokens == oracle([room + 50] * 20, 8)
    assert prefill.initial()
    assert decode.initial()
