"""Two workers in a simulated world, and what tests of single failures ask of them."""

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim.network import Fate
from pdcluster_worker.sim.node import Answer, Node, Sizes
from pdcluster_worker.sim.world import World


def pair(sizes: Sizes | None = None, *, decode: Sizes | None = None) -> tuple[World, Node, Node]:
    """One of each role, of the same sizes unless ``decode`` has its own."""
    world = World(4)
    first = world.add("prefill", "p", sizes=sizes)
    return world, first, world.add("decode", "d", sizes=decode or sizes)


def both(world: World, room: int, prompt: list[int], *, max_new: int = 8) -> tuple[Answer, Answer]:
    """A request on both legs; prefill's answer and decode's."""
    first, second = (
        world.nodes[host].submit(f"r{room}", prompt, room=room, prefill="p", max_new=max_new)
        for host in ("p", "d")
    )
    return first, second


def stage_of(node: Node, rid: str) -> Stage | None:
    """Where a live request is."""
    return next((r.stage for r in node.pipeline.live() if r.rid == rid), None)


def run_until(world: World, node: Node, rid: str, *, stage: Stage) -> None:
    """Let time pass until the request is there."""
    world.run(20.0, until=lambda: stage_of(node, rid) is stage)
    assert stage_of(node, rid) is stage, node.pipeline.stages()


def slow_writes(world: World, seconds: float) -> None:
    """Writes of requests take so long; those of handshakes do not."""
    world.write_delay = lambda write: seconds if write.key else 0.001


def writes_of(world: World) -> list[Write]:
    """The writes of requests from now on, as they are posted."""
    seen: list[Write] = []
    original = world.network.write

    def recording(source: Node, write: Write, *, now: float) -> None:
        if write.key:
            seen.append(write)
        original(source, write, now=now)

    world.network.write = recording  # type: ignore[method-assign]
    return seen


def fail_write(world: World, *, room: int, number: int, after_s: float) -> None:
    """The write with this number, from 0, of a room fails after a while and never arrives."""
    count = 0

    def fate(kind: str, source: Node, *, host: str, room: int, of: int = room) -> Fate:
        nonlocal count
        del source, host
        if kind != "write" or room != of:
            return Fate()
        count += 1
        return Fate(delays=(), fails_after=after_s) if count == number + 1 else Fate()

    world.fate = fate  # type: ignore[method-assign]
