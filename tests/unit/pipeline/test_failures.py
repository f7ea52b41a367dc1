"""Ends that come twice, late or out of order change nothing."""

import pytest

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline.effects import Launch
from pdcluster_worker.wire.local import Tokens
from pdcluster_worker.wire.peer import AbortAck, Alive
from tests.unit.pipeline.rig import DecodeRig, PrefillRig, Sizes


def test_e52_pages_of_a_request_that_ends_twice_come_back_once() -> None:
    """Trigger: a request is aborted, aborted again, and its pass fails, all in one turn.
    Others: the second end freed the slots again, while they already belonged to another.
    Here: a lease is given back exactly once; what has ended takes no further end.
    Bound: the end of the pass that runs.
    """
    rig = DecodeRig(Sizes(pages=8))
    rig.submit("a", 20, room=1)
    rig.reach()
    rig.deliver(1)
    rig.tick()
    assert rig.pipeline.stages() == {Stage.RUNNING: 1}
    for _ in range(2):
        rig.abort("a")
        assert rig.pools.pages.count().free == 2, "its pass still runs"
    rig.results(error="made up")
    assert rig.initial()
    taken = rig.pools.lease(pages=8, row=True)
    rig.abort("a")
    rig.results()
    rig.deliver(1)
    assert taken is not None
    assert rig.pools.pages.count().held == 8


@pytest.mark.parametrize("proven", [False, True])
def test_e58_what_has_failed_is_not_completed_by_late_writes(proven: bool) -> None:
    """Trigger: a request fails, and then the notices of its last writes come in.
    Others: the later state was the larger number, so failed became done again.
    Here: a failed request has no way back in the table; its last message was its failure.
    Bound: none needed; late notices are dropped and counted.
    """
    rig = DecodeRig()
    rig.submit("a", 20, room=1)
    rig.reach()
    rig.abort("a")
    if proven:
        rig.frame(AbortAck(room=1, generation=rig.published(1).generation))
    rig.deliver(1)
    rig.tick(1.0)
    assert rig.failure("a") == "client_gone"
    assert not any(isinstance(message, Tokens) for message in rig.told("a"))
    assert rig.pipeline.counts["handoffs"] == 0
    assert not rig.of(Launch)


def test_e69_a_decode_that_waits_for_memory_has_not_published() -> None:
    """Trigger: decode says that it holds a room, and has no memory for it yet.
    Others: one state stood for waiting and for ready, so pages were sent to nowhere.
    Here: waiting, looked up, queued and published are stages of their own; only pages that were
    published start the computation.
    Bound: signs of life extend prefill's wait up to queue_timeout_s.
    """
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    for _ in range(4):
        rig.frame(Alive(rooms=((1, 0),)))
        rig.tick(1.0)
    assert rig.pipeline.stages() == {Stage.BOOTSTRAP: 1}
    assert rig.pools.pages.count().held == 0
    assert not rig.of(Launch)
    rig.publish(1, 8)
    rig.tick()
    assert rig.of(Launch)
