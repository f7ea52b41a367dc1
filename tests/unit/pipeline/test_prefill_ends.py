"""How requests end on prefill: pages are pinned until the engine and every write are quiet."""

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import TransferError
from pdcluster_worker.wire.peer import Abort, AbortAck, Alive, Bye, Refused
from tests.unit.pipeline.rig import OTHER, PEER, PrefillRig, Sizes, computed


def test_e01_an_aborted_hand_off_is_acknowledged_only_when_its_writes_are_quiet() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    pages, row = computed(rig)
    rig.frame(Abort(room=1, generation=1, kind="aborted", message="gone"))
    assert rig.failure("a") == "aborted"
    assert rig.said(AbortAck) == []
    assert rig.pools.pages.count().held == 2
    rig.settle(pages)
    assert rig.said(AbortAck) == []
    rig.settle(row)
    assert rig.said(AbortAck) == [AbortAck(room=1, generation=1)]
    assert rig.initial()


def test_e02_a_failed_write_keeps_the_source_until_the_library_lets_go() -> None:
    """Trigger: a write fails on prefill while the network card may still read its pages.
    Others: freed the source pages at once, or forgot whom to acknowledge.
    Here: source pages are pinned until every write is settled; the acknowledgement comes last.
    Bound: the library's own word that each write is over.
    """
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    pages, row = computed(rig)
    rig.pipeline.write_failed(pages.key, PEER, error=TransferError("no"), now=rig.now)
    rig.collect()
    (refused,) = rig.said(Refused)
    assert (refused.kind, refused.quiescent) == ("transfer_error", False)
    rig.settle(row)
    assert rig.pools.pages.count().held == 2
    rig.pipeline.write_settled(pages.key, rig.now)
    rig.collect()
    assert rig.said(AbortAck) == [AbortAck(room=1, generation=1)]
    assert rig.initial()


def test_pages_that_the_engine_still_writes_are_not_released() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.tick()
    rig.abort("a")
    assert rig.pipeline.stages() == {Stage.DEFERRED: 1}
    assert rig.pools.pages.count().held == 2
    assert rig.said(AbortAck) == []
    rig.results()
    assert rig.said(AbortAck) == [AbortAck(room=1, generation=1)]
    assert rig.initial()


def test_e57_signs_of_life_extend_the_wait_up_to_the_queue_limit() -> None:
    limits = LimitSpec(bootstrap_timeout_s=2.0, queue_timeout_s=6.0)
    rig = PrefillRig(Sizes(limits=limits))
    rig.submit("a", 8, room=1)
    rig.submit("b", 8, room=2)
    waited: dict[str, float] = {}
    start = rig.now
    while len(waited) < 2:
        rig.frame(Alive(rooms=((1, 0),)))
        rig.tick(0.5)
        for rid in ("a", "b"):
            if rig.failure(rid):
                assert rig.failure(rid) == "bootstrap_timeout"
                waited.setdefault(rid, rig.now - start)
    assert waited == {"a": 6.0, "b": 2.0}


def test_each_wait_has_an_error_of_its_own() -> None:
    rig = PrefillRig(Sizes(pages=4, limits=LimitSpec(heartbeat_timeout_s=1e3)))
    rig.submit("none", 4, room=9)
    rig.submit("flight", 16, room=1)
    rig.publish(1, 16)
    rig.submit("memory", 16, room=2)
    rig.publish(2, 16)
    computed(rig)
    rig.tick(121.0)
    kinds = {rid: rig.failure(rid) for rid in ("none", "flight", "memory")}
    assert kinds == {
        "none": "bootstrap_timeout", "flight": "transfer_timeout", "memory": "queue_timeout",
    }  # fmt: skip


@pytest.mark.parametrize("silence", [True, False])
def test_a_decode_that_is_lost_fails_its_requests_and_its_orphans(silence: bool) -> None:
    rig = PrefillRig()
    rig.greet(OTHER)
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.publish(2, 8)
    if silence:
        for _ in range(20):
            rig.frame(Alive(), sender=OTHER)
            rig.tick(0.5)
    else:
        rig.frame(Bye())
    if not rig.idle:
        rig.results()
    assert rig.failure("a") == "peer_lost"
    assert rig.initial()
    rig.submit("b", 8, room=2)
    assert rig.pipeline.stages() == {Stage.BOOTSTRAP: 1}, "its orphan is gone"
