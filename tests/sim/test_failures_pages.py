"""Pages and rows: nothing is answered from what did not arrive, nothing stays taken."""

import pytest

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import Aborted
from pdcluster_worker.kv.rows import WARM_ROW
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim.node import Node, Sizes
from pdcluster_worker.sim.toy import oracle
from tests.sim.rig import both, fail_write, pair, run_until, slow_writes, stage_of


def test_e10_no_token_comes_from_pages_that_did_not_arrive() -> None:
    """Trigger: one write in the middle of a hand-off fails after all later ones have arrived.
    Others: answered garbage with status 200, and kept the pages as a cached prefix.
    Here: every chunk is counted; one that is missing fails the request before its first token.
    Bound: the transport's own report of the failure, plus one frame.
    """
    world, prefill, decode = pair(Sizes(chunk_tokens=8))
    fail_write(world, room=1, number=1, after_s=0.5)
    _, lost = both(world, 1, [3] * 30)
    _, served = both(world, 2, [5] * 30)
    world.run(1.5)
    assert served.tokens == oracle([5] * 30, 8)
    assert lost.tokens == []
    assert lost.failed is not None
    assert lost.failed.kind == "transfer_error"
    _, again = both(world, 3, [3] * 30)
    world.run(1.5)
    assert again.tokens == oracle([3] * 30, 8)
    assert prefill.initial()
    assert decode.initial()


SCARCE = Sizes(pages=24, reserved=0)


def test_e42_an_abort_while_decode_waits_for_memory_takes_nothing_along() -> None:
    """Trigger: a client leaves while its request waits for pages on decode.
    Others: pages of the request that had gone were taken later and never came back.
    Here: it leaves the queue at once; prefill is told by room, since nothing was published.
    Bound: one turn on decode, one frame to prefill.
    """
    world, prefill, decode = pair(SCARCE)
    _, served = both(world, 1, [1] * 80, max_new=14)
    first, _ = both(world, 2, [2] * 80)
    run_until(world, decode, "r2", stage=Stage.PREALLOC)
    decode.abort("r2", kind=Aborted.kind)
    assert stage_of(decode, "r2") is None
    assert decode.pipeline.tables()["prealloc"] == 0
    world.run(5.0)
    assert first.failed is not None
    assert served.tokens == oracle([1] * 80, 14)
    assert prefill.initial()
    assert decode.initial()


def test_e45_an_abort_while_prefill_waits_frees_pages_and_row_of_both() -> None:
    """Trigger: decode ends a request that has published its pages and still waits on prefill.
    Others: the metadata row stayed taken; after as many aborts as rows nothing was served.
    Here: prefill drops it from its queue and says so; that is the proof that decode needs.
    Bound: two frames.
    """
    world, prefill, decode = pair(SCARCE, decode=Sizes(pages=64))
    slow_writes(world, 2.0)
    _, served = both(world, 1, [1] * 80)
    run_until(world, prefill, "r1", stage=Stage.INFLIGHT)
    for room in range(2, 20):
        first, _ = both(world, room, [2] * 80)
        run_until(world, prefill, f"r{room}", stage=Stage.WAITING)
        assert decode.pools.rows.count().held == 2
        decode.abort(f"r{room}", kind=Aborted.kind)
        world.run(0.02)
        assert first.failed is not None
        assert decode.pools.rows.count().free == 7
        assert prefill.pools.rows.count().free == 7
    world.run(5.0)
    assert served.tokens == oracle([1] * 80, 8)
    assert prefill.initial()
    assert decode.initial()


@pytest.mark.parametrize("leaves", ["p", "d"])
def test_e49_a_client_that_leaves_during_the_hand_off_ends_both_legs(leaves: str) -> None:
    """Trigger: a client cancels while its pages are being written.
    Others: only one leg ended; the other's buffers were lost until a restart.
    Here: each leg tells the other; pages return once the last write is quiet, not before.
    Bound: one frame for the answers, the write's own end for the pages.
    """
    world, prefill, decode = pair()
    slow_writes(world, 1.0)
    answers = both(world, 1, [1] * 40)
    run_until(world, prefill, "r1", stage=Stage.INFLIGHT)
    world.nodes[leaves].abort("r1", kind=Aborted.kind)
    world.run(0.1)
    assert all(answer.failed is not None for answer in answers)
    assert decode.pools.pages.count().quarantined == 10
    assert prefill.pools.pages.count().held == 10
    world.run(2.0)
    assert prefill.initial()
    assert decode.initial()


def test_e50_warm_ups_and_probes_keep_no_page_and_touch_no_row_of_others() -> None:
    """Trigger: warm-ups and health probes, for weeks.
    Others: each left a little KV behind, until memory was full.
    Here: a warm-up writes the one row that is never handed out; a probe lends a page for one pass.
    Bound: one page for as long as the probe's pass runs.
    """
    world, prefill, decode = pair()
    warm: list[Write] = []
    original = world.network.write

    def watching(source: Node, write: Write, *, now: float) -> None:
        warm.extend([write] if write.key == 0 else [])
        original(source, write, now=now)

    world.network.write = watching  # type: ignore[method-assign]
    for node in (prefill, decode):
        for number in range(50):
            node.ask_health(f"h{number}")
            world.run(0.02)
            assert node.pools.pages.count().held <= 1
    both(world, 1, [1] * 20)
    world.run(2.0)
    assert {(write.region, int(write.target[0])) for write in warm} == {("meta", WARM_ROW)}
    assert all(a.finish for n in (prefill, decode) for a in n.answers.values())
    rows = [decode.pools.rows.allocate() for _ in range(decode.pools.rows.count().free)]
    assert WARM_ROW not in rows
    assert decode.pools.pages.count().free == 64
    assert prefill.initial()


def test_e83_whatever_failed_leaves_every_table_empty() -> None:
    """Trigger: hand-offs fail, and a request that was pushed out to host memory is aborted.
    Others: receivers stayed in their table; a worker with pushed-out requests called itself idle.
    Here: one exit forgets a request in every table; pushed-out requests count as live.
    Bound: addresses and rooms by their time to live, the rest at once.
    """
    world, prefill, decode = pair(Sizes(pages=24, reserved=0, running_max=3))
    for room in range(1, 7):
        both(world, room, [room] * 8, max_new=60)
    fail_write(world, room=5, number=0, after_s=0.01)
    world.run(20.0, until=lambda: Stage.RETRACTED in decode.pipeline.stages())
    (pushed, *_) = [r for r in decode.pipeline.live() if r.stage is Stage.RETRACTED]
    others = [r.rid for r in decode.pipeline.live() if r is not pushed]
    for rid in others:
        decode.abort(rid, kind=Aborted.kind)
    assert Stage.RETRACTED in decode.pipeline.stages()
    decode.abort(pushed.rid, kind=Aborted.kind)
    world.run(70.0)
    assert decode.answers["r5"].failed is not None
    for node in (prefill, decode):
        assert set(node.pipeline.tables().values()) == {0}, node.pipeline.tables()
        assert node.initial()
