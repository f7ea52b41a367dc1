"""Places: who may hold memory without one in the running batch, and for how long (F26)."""

from dataclasses import replace

import pytest

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec, TransferSpec
from pdcluster_api.names import Role
from pdcluster_api.states import Stage
from pdcluster_worker.roles.build import extra_slots_of
from pdcluster_worker.sim.node import Sizes as NodeSizes
from pdcluster_worker.sim.schedule import LIMITS
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.peer import Publish
from tests.unit.pipeline.rig import DecodeRig, Sizes


@pytest.mark.parametrize(("extra", "published"), [(0, 2), (1, 3), (9, 5)])
def test_f26_hand_offs_may_be_as_many_as_places_and_the_extra_ones(
    extra: int, published: int
) -> None:
    rig = DecodeRig(Sizes(running_max=2, extra_slots=extra))
    for number in range(1, 6):
        rig.submit(f"r{number}", 4, room=number)
    rig.reach()
    assert len(rig.said(Publish)) == published
    for room in range(1, published + 1):
        rig.deliver(room)
    rig.tick()
    assert rig.pipeline.stages()[Stage.RUNNING] == 2
    assert len({p.room for p in rig.said(Publish)}) == published, "a committed one keeps its place"


def test_who_waits_for_a_place_with_its_answer_begun_waits_within_a_limit() -> None:
    rig = DecodeRig(Sizes(running_max=1, extra_slots=1))
    for room in (1, 2):
        rig.submit(f"r{room}", 4, room=room)
    rig.reach()
    rig.deliver(1)
    rig.tick()
    rig.deliver(2)
    assert rig.pipeline.stages() == {Stage.RUNNING: 1, Stage.COMMITTED: 1}
    rig.now += rig.sizes.limits.queue_timeout_s + 1.0
    rig.tick()
    assert rig.failure("r2") == "queue_timeout"
    assert rig.failure("r1") == ""


def test_aggregated_computes_no_prompt_that_has_no_place() -> None:
    """It would hold pages, and its client a first token, for as long as others like to run."""
    world = World()
    node = world.add("aggregated", "a", sizes=NodeSizes(running_max=1, limits=LIMITS))
    for number in range(4):
        node.submit(f"r{number}", [1] * 4, room=0, prefill="", max_new=40)
    world.run(0.5)
    assert node.pipeline.stages() == {Stage.RUNNING: 1, Stage.WAITING: 3}
    assert [len(answer.tokens) > 0 for answer in node.answers.values()] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("running", "asked", "extra"), [(8, -1, 16), (32, -1, 64), (33, -1, 0), (8, 0, 0), (64, 5, 5)]
)
def test_extra_places_as_configured(running: int, asked: int, extra: int) -> None:
    spec = LaunchSpec(role=Role.DECODE, model=ModelSpec(source="tiny://llama"))
    spec = replace(
        spec, engine=EngineSpec(running_max=running), transfer=TransferSpec(extra_slots=asked)
    )
    assert extra_slots_of(spec) == extra
