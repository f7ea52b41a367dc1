"""Rooms on prefill: which of Publish, Submit, Abort comes first, twice, or from strangers."""

import pytest

from pdcluster_worker.pipeline.effects import FillRow
from pdcluster_worker.wire.peer import Abort, AbortAck, Publish, Refused
from tests.unit.pipeline.rig import OTHER, PEER, PrefillRig, Sizes, computed, digest


def test_e77_an_abort_before_the_request_ends_it_when_it_comes() -> None:
    rig = PrefillRig()
    rig.frame(Abort(room=1, generation=0, kind="aborted", message="gone"))
    rig.submit("a", 8, room=1)
    assert rig.failure("a") == "aborted"
    rig.submit("b", 8, room=1)
    assert rig.failure("b") == "", "the tombstone serves once"


def test_e77_an_abort_of_a_published_room_takes_the_orphan_along() -> None:
    rig = PrefillRig()
    rig.publish(1, 8)
    rig.frame(Abort(room=1, generation=1, kind="overloaded", message="full"))
    assert rig.said(AbortAck) == [AbortAck(room=1, generation=1)]
    rig.submit("a", 8, room=1)
    assert rig.failure("a") == "peer_refused"


def test_an_abort_for_an_unknown_room_is_acknowledged() -> None:
    rig = PrefillRig()
    rig.frame(Abort(room=77, generation=5, kind="aborted", message="gone"))
    assert rig.said(AbortAck) == [AbortAck(room=77, generation=5)]


def test_an_unpublished_abort_owes_no_acknowledgement() -> None:
    rig = PrefillRig()
    rig.frame(Abort(room=77, generation=0, kind="aborted", message="gone"))
    assert rig.said(AbortAck) == []


def test_e59_a_publish_for_a_room_that_ended_here_is_refused_at_once() -> None:
    """Trigger: one leg is refused or ends, and the router does not cancel the other.
    Others: the other leg waited for its limit, or answered garbage.
    Here: each leg ends the other itself; prefill remembers the room for a decode that comes later.
    Bound: one frame after the other leg has spoken; the memory lasts orphan_ttl_s.
    """
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.abort("a")
    rig.publish(1, 8)
    (refused,) = rig.said(Refused)
    assert (refused.room, refused.generation, refused.kind) == (1, 1, "client_gone")
    assert refused.quiescent


def test_e59_a_refusal_at_intake_reaches_a_decode_that_already_published() -> None:
    rig = PrefillRig(Sizes(pages=4))
    rig.publish(1, 17)
    rig.submit("a", 17, room=1)
    assert rig.failure("a") == "context_length_exceeded"
    (refused,) = rig.said(Refused)
    assert (refused.kind, refused.quiescent) == ("context_length_exceeded", True)


def test_a_publish_that_comes_twice_is_taken_once() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.publish(1, 8)
    assert rig.said(Refused) == []
    rig.settle(*computed(rig))
    assert len(rig.of(FillRow)) == 1
    assert rig.initial()


@pytest.mark.parametrize(("sender", "generation"), [(OTHER, 1), (PEER, 2)])
def test_e20_another_publish_for_a_live_room_is_refused_and_the_first_goes_on(
    sender: str, generation: int
) -> None:
    """Trigger: two live requests in one room.
    Others: both schedulers ended with a KeyError.
    Here: the second is refused with a reason; the first keeps its pages and goes on.
    Bound: at once.
    """
    rig = PrefillRig()
    rig.greet(OTHER)
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.publish(1, 8, generation=generation, sender=sender, first=40)
    (refused,) = rig.said(Refused)
    assert (refused.kind, refused.generation) == ("room_conflict", generation)
    writes = computed(rig)
    assert {write.instance for write in writes} == {PEER}
    assert writes[0].target.tolist() == [10, 11]


@pytest.mark.parametrize("tokens", [7, 9])
def test_legs_that_disagree_about_the_prompt_fail_both(tokens: int) -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, tokens)
    assert rig.failure("a") == "peer_incompatible"
    (refused,) = rig.said(Refused)
    assert refused.kind == "peer_incompatible"
    assert rig.initial()


def test_too_few_pages_for_the_prompt_fail_both() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    publish = Publish(
        room=1,
        generation=1,
        pages=b"\1\0\0\0",
        start_page=0,
        row=3,
        prompt_tokens=8,
        digest=digest(8),
    )
    rig.frame(publish)
    assert rig.failure("a") == "peer_incompatible"


def test_e20_the_same_words_of_another_decode_are_another_publish() -> None:
    rig = PrefillRig()
    rig.greet(OTHER)
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.forget()
    rig.publish(1, 8, sender=OTHER)
    (refused,) = rig.said(Refused)
    assert refused.kind == "room_conflict"
