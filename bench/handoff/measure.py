"""Runs all ways in turn, again and again, on one pair of processes per shape."""

import os
import random
from collections.abc import Callable, Mapping

from bench.handoff.bare import BlockFirst, LayerMajor, NaiveTuples
from bench.handoff.memcpy import Memcpy
from bench.handoff.product import Product
from bench.handoff.receiver import SENDER, Receiver, checksum
from bench.handoff.shapes import Shape, plans
from bench.handoff.side import Side
from bench.handoff.ways import Pair, Way

WAYS: Mapping[str, Callable[[Pair], Way]] = {
    "product": Product,
    "raw block-first": BlockFirst,
    "memcpy": Memcpy,
    "prepared layer-major": LayerMajor,
    "naive tuples": NaiveTuples,
}
WARM_UP_ROUNDS = 3


def measure(
    shape: Shape, *, rounds: int, seed: int, rest_s: float = 0.0, only: tuple[str, ...] = ()
) -> dict[str, list[float]]:
    """Seconds per way and round; ``only`` some ways, each after a rest of ``rest_s``.

    Without a rest caches, branch predictors and clock are warm, as no hand-off in life finds them.

    Within a round the ways take turns in random order, each with pages of its own: the pages of the
    way before are still in the cache, which would flatter whoever follows.
    """
    cores = sorted(os.sched_getaffinity(0))
    receiver = Receiver(shape, core=cores[-1])
    os.sched_setaffinity(0, {cores[0]})
    sender = Side(shape, SENDER)
    try:
        pair = _connect(sender, receiver)
        ways = {name: make(pair) for name, make in WAYS.items() if not only or name in only}
        _verify(pair, ways, seed=seed)
        names = list(ways)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        todo = iter(plans(shape, count=(rounds + WARM_UP_ROUNDS) * len(names), seed=seed))
        order = random.Random(seed)
        for number in range(rounds + WARM_UP_ROUNDS):
            for name in order.sample(names, len(names)):
                if rest_s:
                    sender.clock.sleep(rest_s)
                took = ways[name].measure(next(todo))
                if number >= WARM_UP_ROUNDS:
                    seconds[name].append(took)
        return seconds
    finally:
        receiver.close()
        sender.close()
        os.sched_setaffinity(0, cores)


def _connect(sender: Side, receiver: Receiver) -> Pair:
    receiver.introduce(sender.bare.get_agent_metadata())
    sender.bare.add_remote_agent(receiver.metadata)
    return Pair(sender=sender, receiver=receiver)


def _verify(pair: Pair, ways: Mapping[str, Way], *, seed: int) -> None:
    """A wrong address would be fast too: compare the bytes once per way that keeps our layout."""
    tensor = pair.sender.pool.tensor
    for number, (name, way) in enumerate(ways.items()):
        if way.block_first:
            tensor.normal_()
            [plan] = plans(pair.sender.shape, count=1, seed=seed + number)
            way.measure(plan)
            if checksum(pair.sender, plan.source) != pair.receiver.checksum(plan.target):
                raise RuntimeError(f"{name}: the receiver holds other bytes")
