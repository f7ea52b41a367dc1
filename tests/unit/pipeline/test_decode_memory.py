"""Memory on decode: first come, first served; who is pushed out, and in which order they return."""

from pdcluster_api.states import Stage
from pdcluster_worker.wire.local import Tokens
from pdcluster_worker.wire.peer import Publish
from tests.unit.pipeline.rig import DecodeRig, Sizes


def committed(rig: DecodeRig, *lengths: int, max_new: int = 40) -> None:
    """Requests r1, r2, ... whose KV is here."""
    for room, length in enumerate(lengths, 1):
        rig.submit(f"r{room}", length, room=room, max_new_tokens=max_new)
    rig.reach()
    for room, _ in enumerate(lengths, 1):
        rig.deliver(room)


def until(rig: DecodeRig, stage: Stage) -> list[str]:
    """Passes until somebody is in ``stage``; who."""
    for _ in range(100):
        rig.tick()
        if found := [r.rid for r in rig.pipeline.live() if r.stage is stage]:
            return found
        if not rig.idle:
            rig.results()
    raise AssertionError(f"nobody is ever {stage}")


def finish(rig: DecodeRig) -> list[str]:
    """Passes until nobody is left; every "rid stage" that was seen, in order."""
    seen: list[str] = []
    for _ in range(300):
        rig.tick()
        seen += [f"{r.rid} {r.stage}" for r in rig.pipeline.live()]
        if not seen or not list(rig.pipeline.live()):
            return seen
        if Stage.TRANSFER in rig.pipeline.stages():
            rig.deliver(9)
        if not rig.idle:
            rig.results()
    raise AssertionError(f"somebody never ends: {rig.pipeline.stages()}")


def test_e24_a_head_that_does_not_fit_is_not_overtaken() -> None:
    rig = DecodeRig(Sizes(pages=10))
    for room, length in ((1, 20), (2, 24), (3, 4)):
        rig.submit(f"r{room}", length, room=room, max_new_tokens=1)
    rig.reach()
    assert [publish.room for publish in rig.said(Publish)] == [1]
    rig.deliver(1)  # ends at once: one token
    rig.tick()
    assert [publish.room for publish in rig.said(Publish)] == [1, 2, 3]


def test_no_row_holds_back_the_head_and_takes_no_page() -> None:
    rig = DecodeRig(Sizes(rows=2))
    rig.submit("r1", 4, room=1)
    rig.submit("r2", 4, room=2)
    rig.reach()
    assert [publish.room for publish in rig.said(Publish)] == [1]
    assert rig.pools.pages.count().held == 1
    rig.deliver(1)
    rig.tick()
    assert [publish.room for publish in rig.said(Publish)] == [1, 2]


def test_the_fewest_tokens_are_pushed_out_and_ties_go_to_the_longest_prompt() -> None:
    rig = DecodeRig(Sizes(pages=7))
    committed(rig, 8, 12, max_new=9)
    assert until(rig, Stage.RETRACTED) == ["r2"]
    assert rig.host.copies


def test_e23_pushed_out_requests_come_back_and_finish() -> None:
    """Trigger: running answers outgrow decode's memory and some are pushed out.
    Others: a request that was pushed out never came back.
    Here: its KV waits in host memory and returns, first in first out, before anything new.
    Bound: queue_timeout_s.
    """
    rig = DecodeRig(Sizes(pages=7))
    committed(rig, 8, 12, max_new=9)
    finish(rig)
    assert rig.pipeline.counts["retractions"] > 0
    for rid in ("r1", "r2"):
        messages = [m for m in rig.told(rid) if isinstance(m, Tokens)]
        assert sum(len(m.ids) for m in messages) == 9
        assert messages[-1].finish == "length"
    assert rig.initial()
    assert not rig.host.copies


def test_what_is_pushed_out_comes_back_before_anything_new() -> None:
    rig = DecodeRig(Sizes(pages=7))
    committed(rig, 8, 12, max_new=9)
    until(rig, Stage.RETRACTED)
    rig.submit("new", 20, room=9, max_new_tokens=2)
    rig.results()
    seen = finish(rig)
    assert seen.index("r2 running") < seen.index("new transfer")
    assert rig.initial()


def test_e25_transfers_commit_while_a_retracted_request_waits() -> None:
    """Trigger: pages arrive while a request that was pushed out cannot return yet.
    Others: stopped looking at transfers, so that neither could ever move.
    Here: arrivals are looked at in every turn, whatever waits.
    Bound: one turn.
    """
    rig = DecodeRig(Sizes(pages=9))
    committed(rig, 8, 12, max_new=13)
    rig.submit("late", 4, room=9, max_new_tokens=2)
    until(rig, Stage.TRANSFER)
    while Stage.RETRACTED not in rig.pipeline.stages():
        rig.results()
        rig.tick()
    rig.deliver(9)
    assert any(isinstance(m, Tokens) for m in rig.told("late"))


def test_e37_without_host_memory_the_victim_fails_and_the_others_go_on() -> None:
    """Trigger: a request must be pushed out and there is no place in host memory.
    Others: the copy raised in the scheduler and ended it.
    Here: that request fails with overloaded; the others get its pages.
    Bound: at once.
    """
    rig = DecodeRig(Sizes(pages=7, host_pages=1))
    committed(rig, 8, 12, max_new=9)
    finish(rig)
    assert rig.failure("r2") == "overloaded"
    last = rig.told("r1")[-1]
    assert isinstance(last, Tokens)
    assert last.finish == "length"
    assert rig.initial()


def test_the_last_one_that_finds_no_page_fails_and_nobody_crashes() -> None:
    rig = DecodeRig(Sizes(pages=6))
    committed(rig, 20, max_new=5)
    assert rig.pools.pages.allocate(1) is not None  # what nobody gives back
    rig.tick()
    assert rig.failure("r1") == "overloaded"
    assert rig.pools.pages.count().held == 1


def test_e44_an_abort_while_pushed_out_drops_the_host_copy() -> None:
    """Trigger: a client leaves while its request waits in host memory.
    Others: the copy stayed for ever.
    Here: the copy is dropped with the request.
    Bound: at once.
    """
    rig = DecodeRig(Sizes(pages=7))
    committed(rig, 8, 12, max_new=9)
    until(rig, Stage.RETRACTED)
    rig.abort("r2")
    assert not rig.host.copies
    assert rig.failure("r2") == "client_gone"
