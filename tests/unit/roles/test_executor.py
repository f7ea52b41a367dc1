"""The executor carries out effects in order and tells each outcome once, when it is true."""

import pytest

from pdcluster_worker.core.errors import TransferError, TransferPeerLost, TransferTimeout
from pdcluster_worker.pipeline.effects import (
    Discard,
    Emit,
    FillRow,
    Part,
    Resolve,
    Send,
)
from pdcluster_worker.wire.codec import to_frontend
from pdcluster_worker.wire.local import Failed
from pdcluster_worker.wire.peer import Bye, Unwelcome
from tests.unit.roles.rig import PEER, ROW, ExecutorRig, join, prepare, write


@pytest.fixture
def rig() -> ExecutorRig:
    return ExecutorRig()


def test_a_write_is_told_once_when_it_is_done(rig: ExecutorRig) -> None:
    rig.executor.run([write(7)])
    assert rig.transport.posted == {1: 160.0}, "its deadline counts from its posting"
    assert rig.poll() == 0
    rig.transport.done.add(1)
    assert rig.poll() == 1
    assert rig.poll() == 0
    assert rig.told == [("done", 7, PEER, 10)]
    assert rig.executor.open_writes == 0
    assert not rig.transport.agents, "its handle is given back"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TransferError("x"), "transfer_error"),
        (TransferPeerLost("x"), "transfer_peer_lost"),
        (TransferTimeout("x"), "transfer_timeout"),
    ],
)
def test_e81_a_failed_write_is_told_at_once_and_settled_only_when_the_library_says_so(
    rig: ExecutorRig, error: TransferError | TransferTimeout, kind: str
) -> None:
    """Trigger: a write stays pending for ever.
    Others: a worker thread waited for it without a limit, and its request with it.
    Here: each write has a deadline; the request fails then, its pages stay pinned until it is over.
    Bound: transfer_timeout_s for the request.
    """
    rig.executor.run([write(7)])
    rig.transport.failing[1] = error
    assert rig.poll() == 0
    assert rig.told == [("failed", 7, PEER, kind)]
    for _ in range(3):
        assert rig.poll() == 0
    assert rig.executor.open_writes == 1, "its pages stay pinned"
    rig.transport.quiet.add(1)
    assert rig.poll() == 1
    assert rig.told[1:] == [("settled", 7)]
    assert rig.executor.write_errors[kind] == 1


def test_a_write_that_cannot_be_posted_fails_and_is_settled_at_once(rig: ExecutorRig) -> None:
    rig.transport.refuse_post = TransferError("no")
    rig.executor.run([write(7)])
    assert [what for what, *_ in rig.told] == ["failed", "settled"]
    assert rig.executor.open_writes == 0


def test_a_write_to_a_stranger_fails_and_is_settled_at_once(rig: ExecutorRig) -> None:
    rig.executor.run([write(7, instance="cc" * 16)])
    assert [what for what, *_ in rig.told] == ["failed", "settled"]


def test_a_prepared_write_is_posted_and_not_made_again(rig: ExecutorRig) -> None:
    rig.executor.run([prepare(7, ticket=3), write(7, ticket=3)])
    assert (rig.transport.made, list(rig.transport.posted)) == (1, [1])


def test_a_discarded_write_gives_its_handle_back(rig: ExecutorRig) -> None:
    rig.executor.run([prepare(7, ticket=3), Discard(3), Discard(3), Discard(99)])
    assert not rig.transport.agents
    rig.executor.run([write(7, ticket=3)])
    assert rig.transport.made == 2


def test_a_peer_is_forgotten_only_after_its_writes_have_settled(rig: ExecutorRig) -> None:
    rig.executor.run([write(7), prepare(8, ticket=4), Part(PEER, PEER)])
    assert rig.transport.peers == {PEER}
    rig.transport.failing[1] = TransferPeerLost("x")
    rig.poll()
    assert rig.transport.peers == {PEER}
    rig.transport.quiet.add(1)
    rig.poll()
    assert rig.transport.peers == set()
    assert not rig.transport.agents, "prepared ones were given back first"
    assert rig.executor.instance_of(PEER) is None


def test_a_peer_may_come_back(rig: ExecutorRig) -> None:
    rig.executor.run([Part(PEER, PEER), join(), write(7)])
    assert rig.executor.open_writes == 1


def test_a_peer_that_the_library_refuses_is_not_joined(rig: ExecutorRig) -> None:
    rig.executor.run([Part(PEER, PEER)])
    rig.transport.refuse_peer = TransferError("no")
    rig.executor.run([join(), write(0)])
    assert [what for what, *_ in rig.told] == ["failed", "settled"]


def test_frames_rows_and_answers_go_out_in_order(rig: ExecutorRig) -> None:
    failed = Failed(rid="r", kind="aborted", message="m")
    rig.executor.run([FillRow(2, ROW), Emit(failed), Send(("h", 1), "", Bye())])
    assert rig.lists.rows == {2: ROW}
    assert [to_frontend.read(message) for message in rig.lists.emitted] == [failed]
    ((endpoint, frame),) = rig.lists.sent
    assert endpoint == ("h", 1)
    assert rig.codec.decode(frame)[1] == Bye()


def test_a_frame_over_the_limit_is_counted_and_stops_nobody(rig: ExecutorRig) -> None:
    huge = Send(("h", 1), PEER, Unwelcome(kind="k", message="x" * 5000))
    rig.executor.run([huge, Send(("h", 1), PEER, Bye())])
    assert len(rig.lists.sent) == 1
    assert rig.executor.dropped["too large"] == 1


def test_e22_a_lookup_that_finds_no_place_fails_at_once(rig: ExecutorRig) -> None:
    rig.executor.run([Resolve(("h", 8998))])
    assert rig.told == [("resolved", ("h", 8998), "Overloaded")]
