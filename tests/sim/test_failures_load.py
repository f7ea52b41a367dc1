"""Under load: back-pressure instead of time-outs, probes beside work."""

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.sim.node import Node, Sizes
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.wire.local import FAKE_HOST, Hop, Sampling, Submit
from tests.sim.rig import both, pair, run_until, stage_of


def test_e26_five_hundred_requests_wait_for_eight_rows_and_are_served() -> None:
    """Trigger: 500 requests at once and 8 metadata rows.
    Others: requests waited in a state that had a limit, and timed out in a cascade.
    Here: decode publishes as many as have rows and tells prefill which others it holds, so that
    they count as queued and not as lost.
    Bound: queue_timeout_s for a place; bootstrap_timeout_s only for rooms that nobody holds.
    """
    limits = LimitSpec(bootstrap_timeout_s=2.0)
    world, prefill, decode = pair(Sizes(rows=9, limits=limits))
    answers = [both(world, room, [room % 250] * 9, max_new=4) for room in range(1, 501)]
    started = world.now
    world.run(100.0, until=lambda: all(answer.ended for _, answer in answers))
    took = world.now - started
    world.run(2.0)
    for room, (first, answer) in enumerate(answers, start=1):
        assert first.finish == "length", first.failed
        assert answer.tokens == oracle([room % 250] * 9, 4)
    assert took > 3 * limits.bootstrap_timeout_s, "too quick to show anything"
    assert prefill.initial()
    assert decode.initial()


def probe(node: Node, rid: str, *, tokens: int) -> None:
    """A health probe with a prompt of many chunks."""
    hop = Hop(host=FAKE_HOST, port=1, room=1)
    prompt = b"\1\0\0\0" * tokens
    node.take(Submit(rid=rid, input_ids=prompt, sampling=Sampling(max_new_tokens=8), hop=hop))


@pytest.mark.parametrize("host", ["p", "d"])
@pytest.mark.parametrize("busy", [False, True])
def test_e31_a_probe_is_over_with_one_pass_however_long_its_prompt(host: str, busy: bool) -> None:
    """Trigger: a health probe whose prompt is longer than a chunk.
    Others: the stand-in for a transfer reported success after the first chunk; pages leaked.
    Here: a probe is no hand-off: one token, one pass, one page, whatever it asks for.
    Bound: the end of the next pass of anybody, or of its own.
    """
    world, prefill, decode = pair(Sizes(chunk_tokens=8))
    if busy:
        _, answer = both(world, 1, [1] * 200, max_new=40)
        stage = Stage.FORWARD if host == "p" else Stage.RUNNING
        run_until(world, world.nodes[host], "r1", stage=stage)
    node = world.nodes[host]
    held = node.pools.pages.count().held
    probe(node, "h", tokens=100)
    world.run(0.003)
    assert node.pools.pages.count().held <= held + (0 if busy else 1)
    world.run(0.15)
    assert node.answers["h"].finish == "length"
    assert len(node.answers["h"].tokens) == 1
    if busy:
        assert stage_of(node, "r1") is not None, "it was still under way"
        world.run(10.0)
        assert answer.tokens == oracle([1] * 200, 40)
    assert prefill.initial()
    assert decode.initial()
