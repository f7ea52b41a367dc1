"""Every row of the three life-cycle tables is reached, and every stage can fail."""

from typing import Any

import pytest

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import QueueTimeout
from pdcluster_worker.pipeline import aggregated, decode_table, prefill_table
from pdcluster_worker.sim.node import Node, Sizes
from pdcluster_worker.sim.world import World

SCARCE = Sizes(pages=24, reserved=0, running_max=3)
PATIENCE_S = 6.0


def crowd(world: World, nodes: list[Node]) -> None:
    """More requests than the pool holds, one that ends with its first token, one of many chunks."""
    world.write_delay = lambda write: 0.05 if write.key else 0.001
    for room in range(1, 7):
        for node in nodes:
            node.submit(f"r{room}", [room] * 12, room=room, prefill="p", max_new=60)
    for room, prompt, count in ((7, [3] * 60, 20), (8, [4] * 5, 1)):
        for node in nodes:
            node.submit(f"r{room}", prompt, room=room, prefill="p", max_new=count)


def fail_first(world: World, node: Node, stage: Stage) -> bool:
    """Wait until a request is in ``stage``, fail it twice; False when none ever is."""
    until = world.now + PATIENCE_S
    while world.now < until:
        for request in list(node.pipeline.live()):
            if request.stage is stage:
                for _ in range(2):
                    node.pipeline._fail(request, QueueTimeout("made up"), world.now)
                return True
        world.run(0.002)
    return False


def rows_taken(nodes: dict[str, str], under_test: str, table: dict[Any, Any]) -> set[object]:
    """Rows that the node under test took while a request failed in each of its stages in turn."""
    taken: set[object] = set()
    for stage in {stage for stage, event in table if stage is not None and event == "failed"}:
        world = World(5)
        made = {host: world.add(role, host, sizes=SCARCE) for host, role in nodes.items()}
        crowd(world, list(made.values()))
        assert fail_first(world, made[under_test], stage) or stage is Stage.DEFERRED, stage
        world.run(40.0)
        for node in made.values():
            assert node.initial(), (stage, node.role, node.pipeline.stages())
            assert all(answer.ended for answer in node.answers.values())
        taken |= set(made[under_test].pipeline.walker.taken)  # type: ignore[attr-defined]
    return taken


PAIR = {"p": "prefill", "d": "decode"}


@pytest.mark.parametrize(
    ("nodes", "under_test", "table"),
    [
        (PAIR, "p", prefill_table.TABLE),
        (PAIR, "d", decode_table.TABLE),
        ({"p": "aggregated"}, "p", aggregated.TABLE),
    ],
    ids=["prefill", "decode", "aggregated"],
)
def test_every_row_is_reached(
    nodes: dict[str, str], under_test: str, table: dict[Any, Any]
) -> None:
    assert set(table) - rows_taken(nodes, under_test, table) == set()
