"""How requests end on decode: quarantine until proof, an error for each wait, one last word."""

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.wire.local import Tokens
from pdcluster_worker.wire.peer import Abort, AbortAck, Alive, Bye, Publish, Refused
from tests.unit.pipeline.rig import OTHER, PEER, DecodeRig, Sizes


def transferring(sizes: Sizes | None = None) -> DecodeRig:
    """Room 1 is published: five pages and a row."""
    rig = DecodeRig(sizes)
    rig.submit("a", 20, room=1)
    rig.reach(pod_uid="pod")
    return rig


def refused(rig: DecodeRig, *, quiescent: bool, sender: str = PEER) -> None:
    """Prefill ends room 1."""
    generation = rig.published(1).generation
    rig.frame(
        Refused(room=1, generation=generation, kind="engine_error", message="m",
                quiescent=quiescent),
        sender=sender,
    )  # fmt: skip


def quarantined(rig: DecodeRig) -> tuple[int, int]:
    """Pages and rows."""
    return rig.pools.pages.count().quarantined, rig.pools.rows.count().quarantined


def test_a_quiet_refusal_gives_everything_back_without_an_abort() -> None:
    rig = transferring()
    refused(rig, quiescent=True)
    assert rig.failure("a") == "engine_error"
    assert rig.said(Abort) == []
    assert rig.initial()


def test_a_refusal_that_is_not_quiet_is_quarantined_until_the_acknowledgement() -> None:
    rig = transferring()
    refused(rig, quiescent=False)
    assert rig.failure("a") == "engine_error"
    assert quarantined(rig) == (5, 1)
    (abort,) = rig.said(Abort)
    rig.frame(AbortAck(room=1, generation=abort.generation))
    assert rig.initial()


def test_a_refusal_of_another_prefill_is_not_believed() -> None:
    rig = transferring()
    refused(rig, quiescent=True, sender=OTHER)
    assert rig.pipeline.stages() == {Stage.TRANSFER: 1}


def test_an_acknowledgement_that_nobody_asked_for_frees_nothing() -> None:
    rig = transferring()
    rig.frame(AbortAck(room=1, generation=rig.published(1).generation))
    rig.abort("a")
    assert quarantined(rig) == (5, 1), "only the answer to our abort is a proof"


@pytest.mark.parametrize(("room", "generation", "sender"), [(1, 99, PEER), (2, 1, PEER)])
def test_e01_an_acknowledgement_of_something_else_frees_nothing(
    room: int, generation: int, sender: str
) -> None:
    rig = transferring()
    rig.abort("a")
    rig.frame(AbortAck(room=room, generation=generation), sender=sender)
    rig.frame(AbortAck(room=1, generation=rig.published(1).generation), sender=OTHER)
    assert quarantined(rig) == (5, 1)


def test_e01_time_alone_frees_nothing() -> None:
    rig = transferring()
    rig.abort("a")
    rig.tick(1000.0)
    assert quarantined(rig) == (5, 1)


def test_an_abort_is_repeated_until_it_is_acknowledged() -> None:
    rig = transferring()
    rig.abort("a")
    rig.forget()
    for _ in range(6):
        rig.frame(Alive())
        rig.tick(0.5)
    assert 2 <= len(rig.said(Abort)) <= 4
    rig.frame(AbortAck(room=1, generation=rig.published(1).generation if rig.said(Publish) else 1))
    rig.forget()
    rig.tick(3.0)
    assert rig.said(Abort) == []
    assert rig.initial()


def test_a_goodbye_is_a_proof() -> None:
    rig = transferring()
    rig.abort("a")
    rig.frame(Bye())
    assert rig.initial()


@pytest.mark.parametrize(("pod_uid", "proven"), [("pod", True), ("other", False), ("", False)])
def test_e53_a_new_instance_is_a_proof_only_in_the_same_pod(pod_uid: str, proven: bool) -> None:
    """Trigger: a prefill restarts behind the same address.
    Others: went on with the dead process until somebody restarted decode too.
    Here: each process has an instance id; a new one in the same pod proves the former dead.
    Bound: heartbeat_timeout_s for requests under way, one lookup for new ones.
    """
    rig = transferring()
    rig.abort("a")
    rig.tick(10.0)  # silent: lost, and looked up again
    rig.resolve(OTHER, pod_uid=pod_uid)
    assert rig.initial() is proven
    assert quarantined(rig) == ((0, 0) if proven else (5, 1))


def test_e53_an_empty_pod_uid_proves_nothing() -> None:
    rig = DecodeRig()
    rig.submit("a", 20, room=1)
    rig.reach(pod_uid="")
    rig.abort("a")
    rig.tick(10.0)
    rig.resolve(OTHER, pod_uid="")
    rig.welcome(OTHER, pod_uid="")
    assert quarantined(rig) == (5, 1)


def test_each_wait_has_an_error_of_its_own() -> None:
    sizes = Sizes(pages=6, limits=LimitSpec(heartbeat_timeout_s=1e3))
    rig = DecodeRig(sizes)
    rig.submit("shake", 4, room=9)
    rig.tick(8.0)
    assert rig.failure("shake") == "handshake_timeout"
    rig.submit("transfer", 20, room=1)
    rig.reach()
    rig.submit("memory", 20, room=2)
    rig.tick(60.0)
    assert rig.failure("transfer") == "transfer_timeout"
    rig.tick(60.5)
    assert rig.failure("memory") == "queue_timeout"


def test_e55_what_has_arrived_is_not_timed_out() -> None:
    """Trigger: the last notice waits to be read when its deadline passes.
    Others: looked at the deadline first and threw away what had arrived.
    Here: a turn reads all notices before it looks at any deadline.
    Bound: one turn.
    """
    rig = transferring(Sizes(limits=LimitSpec(heartbeat_timeout_s=1e3)))
    rig.now += 60.1
    rig.deliver(1)
    rig.tick()
    assert rig.failure("a") == ""
    assert rig.pipeline.stages() == {Stage.RUNNING: 1}


def test_e62_nothing_follows_the_last_message() -> None:
    """Trigger: an abort while the pass with the next token runs.
    Others: that token was streamed after the end.
    Here: a request has exactly one last message; nothing is sent behind it.
    Bound: none needed.
    """
    rig = transferring()
    rig.deliver(1)
    rig.tick()
    rig.abort("a")
    rig.abort("a")
    rig.results()
    rig.tick()
    kinds = [type(message).__name__ for message in rig.told("a")]
    assert kinds == ["Tokens", "Failed"]
    assert rig.initial()


def test_a_stop_string_ends_a_request_without_another_word() -> None:
    rig = transferring()
    rig.deliver(1)
    rig.tick()
    rig.abort("a", finished=True)
    rig.results()
    assert len(rig.told("a")) == 1
    (ended,) = rig.pipeline.ended
    assert ended.outcome == "finished"
    assert rig.initial()


@pytest.mark.parametrize(
    ("sampling", "first", "finish"),
    [({"max_new_tokens": 1}, 7, "length"), ({}, 0, "stop"), ({"stop_token_ids": (7,)}, 7, "stop")],
)
def test_f48_the_handed_over_token_may_be_the_last(
    sampling: dict[str, object], first: int, finish: str
) -> None:
    rig = DecodeRig()
    rig.submit("a", 20, room=1, **sampling)
    rig.reach()
    rig.deliver(1, token=first)
    (message,) = rig.told("a")
    assert isinstance(message, Tokens)
    assert (message.ids, message.finish) == ((first,), finish)
    assert rig.initial()


def test_e73_an_abort_names_one_request_exactly() -> None:
    """Trigger: the name of one request is the beginning of another's.
    Others: ending req1 ended req10 too.
    Here: names are compared whole; a call's name means the samples of that call alone.
    Bound: none needed.
    """
    rig = DecodeRig()
    rig.submit("req1", 20, room=1)
    rig.submit("req10", 20, room=2)
    rig.abort("req1")
    assert rig.failure("req1") == "client_gone"
    assert rig.failure("req10") == ""
