"""Quarantine has a limit: past it nothing new is taken, until proofs have come."""

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.pipeline.effects import Send
from pdcluster_worker.wire.peer import AbortAck
from tests.unit.pipeline.rig import PEER, DecodeRig, Sizes


def quarantined(pages: int, percent: int = 50, rows: int = 9) -> DecodeRig:
    """A decode of 10 pages whose prefill fell silent while it could write ``pages`` of them."""
    limits = LimitSpec(quarantine_percent_max=percent)
    rig = DecodeRig(Sizes(pages=10, rows=rows, limits=limits))
    rig.submit("a", 4 * pages, room=1)
    rig.reach()
    rig.published(1)
    for _ in range(int(limits.heartbeat_timeout_s) + 3):
        rig.now += limits.heartbeat_interval_s
        rig.tick()
    assert rig.failure("a") in ("peer_lost", "transfer_timeout")
    assert rig.pipeline.pools.pages.count().quarantined == pages
    return rig


@pytest.mark.parametrize(
    ("pages", "percent", "taken"), [(5, 50, True), (6, 50, False), (9, 100, True), (3, 20, False)]
)
def test_requests_are_refused_past_the_limit(pages: int, percent: int, taken: bool) -> None:
    rig = quarantined(pages, percent)
    rig.submit("b", 4, room=2)
    assert rig.failure("b") == ("" if taken else "quarantined")
    refusal = rig.pipeline.refusing()
    assert (refusal is None) == taken
    if refusal is not None:
        assert f"{pages} of 10 pages are in quarantine, over {percent} %" in str(refusal)
        assert refusal.code == 503


def test_rows_count_too() -> None:
    rig = quarantined(1, rows=2)
    rig.submit("b", 4, room=2)
    assert rig.failure("b") == "quarantined"


def test_the_other_leg_is_told() -> None:
    rig = quarantined(6)
    rig.forget()
    rig.submit("b", 4, room=2)
    rig.reach()
    told = [e.body for e in rig.of(Send) if getattr(e.body, "room", 0) == 2]
    assert [type(body).__name__ for body in told] == ["Abort"]


def test_the_proof_makes_it_serve_again() -> None:
    rig = quarantined(6)
    rig.frame(AbortAck(room=1, generation=1), sender=PEER)
    assert rig.pipeline.refusing() is None
    rig.submit("b", 4, room=2)
    assert rig.failure("b") == ""
