"""The address book of decode: one lookup at a time, throttled; refusals, messages, forgetting."""

import pytest

from pdcluster_worker.core.errors import PeerIncompatible, PeerLost
from pdcluster_worker.core.ports import Contact
from pdcluster_worker.pipeline.contacts import TELLS_MAX, AddressBook
from pdcluster_worker.pipeline.effects import Effect, Resolve, Send
from pdcluster_worker.pipeline.peers import Change, PeerTable
from pdcluster_worker.wire.peer import Abort, Hello, Welcome
from tests.unit.pipeline.rig import ADDRESS, OTHER, PEER, intro, peer_table


class Rig:
    """A book, its peers and what it wants done."""

    def __init__(self) -> None:
        self.out: list[Effect] = []
        self.peers: PeerTable = peer_table(self.out)
        self.book = AddressBook(
            peers=self.peers, emit=self.out.append, interval_s=1.0, forget_s=60.0, entries_max=64
        )

    def lookups(self) -> int:
        """Started so far."""
        return sum(isinstance(effect, Resolve) for effect in self.out)

    def sent(self) -> list[object]:
        """Bodies of frames so far."""
        return [effect.body for effect in self.out if isinstance(effect, Send)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def contact(instance: str = PEER, *, pod_uid: str = "", fingerprint: str = "f") -> Contact:
    """What the bootstrap server says."""
    return Contact(instance=instance, pod_uid=pod_uid, host="h", port=8997, fingerprint=fingerprint)


def abort(room: int) -> Abort:
    """A room has ended."""
    return Abort(room=room, generation=0, kind="aborted", message="gone")


def test_e22_one_lookup_at_a_time(rig: Rig) -> None:
    for step in range(500):
        assert rig.book.want(ADDRESS, 1.0 + step * 0.01) is None
        rig.book.tick(1.0 + step * 0.01)
    assert rig.lookups() == 1, "its answer has not come"


def test_e22_failing_lookups_are_throttled(rig: Rig) -> None:
    for step in range(500):
        now = 1.0 + step * 0.01
        rig.book.want(ADDRESS, now)
        rig.book.tick(now)
        rig.book.resolved(ADDRESS, PeerLost("refused"))
    assert 5 <= rig.lookups() <= 6
    assert "refused" in rig.book.trouble(ADDRESS)
    assert "prefill:8998" in rig.book.trouble(ADDRESS)


def test_e51_addresses_are_told_apart_exactly(rig: Rig) -> None:
    """Trigger: one peer's address is the beginning of another's.
    Others: the end of one peer ended the requests of both.
    Here: addresses and instances are compared whole.
    Bound: none needed.
    """
    addresses = {("host", 80): PEER, ("host", 8000): OTHER, ("host1", 80): "dd" * 16}
    rig.book.resolved(("host", 8000), contact())
    assert rig.book.address_of(PEER) is None, "nobody has named that address"
    for address, instance in addresses.items():
        rig.book.want(address, 1.0)
        rig.book.resolved(address, contact(instance))
    for address, instance in addresses.items():
        assert rig.book.address_of(instance) == address
    rig.book.refused(PEER, PeerIncompatible("made up"))
    with pytest.raises(PeerIncompatible):
        rig.book.want(("host", 80), 1.0)
    assert rig.book.want(("host", 8000), 1.0) is None
    assert rig.book.want(("host1", 80), 1.0) is None


def test_hello_follows_each_lookup_until_the_peer_is_ready(rig: Rig) -> None:
    rig.book.want(ADDRESS, 1.0)
    rig.book.tick(1.0)
    rig.book.resolved(ADDRESS, contact())
    (hello,) = rig.sent()
    assert isinstance(hello, Hello)
    rig.peers.met(PEER, Welcome(intro=intro(PEER)), now=1.0)
    rig.peers.warm_written(PEER)
    rig.peers.warm_seen(PEER)
    assert rig.book.want(ADDRESS, 2.0) == PEER
    rig.book.tick(3.0)
    assert rig.lookups() == 1, "known and ready: nothing to look up"


def test_e41_another_fingerprint_is_refused_before_hello(rig: Rig) -> None:
    """Trigger: a prefill that does not fit is named by a request.
    Others: the comparison raised in the scheduler loop and ended decode.
    Here: the refusal is that request's own; decode goes on and looks again later.
    Bound: one lookup.
    """
    rig.book.want(ADDRESS, 1.0)
    rig.book.resolved(ADDRESS, contact(fingerprint="g"))
    assert rig.sent() == []
    with pytest.raises(PeerIncompatible, match=r"'f'.*'g'"):
        rig.book.want(ADDRESS, 1.0)


def test_e41_a_refusal_lasts_until_the_next_lookup(rig: Rig) -> None:
    rig.book.want(ADDRESS, 1.0)
    rig.book.resolved(ADDRESS, contact())
    rig.book.refused(PEER, PeerIncompatible("no"))
    with pytest.raises(PeerIncompatible):
        rig.book.want(ADDRESS, 1.5)
    rig.book.tick(2.5)
    assert rig.lookups() == 1
    rig.book.resolved(ADDRESS, contact())
    assert rig.book.want(ADDRESS, 2.6) is None


def test_e59_what_is_to_be_told_waits_for_the_lookup(rig: Rig) -> None:
    rig.book.tell(ADDRESS, abort(1), now=1.0)
    rig.book.tell(ADDRESS, abort(2), now=1.0)
    assert rig.sent() == []
    rig.book.tick(1.0)
    assert rig.lookups() == 1
    rig.book.resolved(ADDRESS, contact())
    assert [b.room for b in rig.sent() if isinstance(b, Abort)] == [1, 2]
    rig.book.tell(ADDRESS, abort(3), now=1.1)
    assert rig.sent()[-1] == abort(3)


def test_what_is_to_be_told_is_bounded_and_the_oldest_goes_first(rig: Rig) -> None:
    for room in range(1, TELLS_MAX + 11):
        rig.book.tell(ADDRESS, abort(room), now=1.0)
    rig.book.resolved(ADDRESS, contact())
    rooms = [body.room for body in rig.sent() if isinstance(body, Abort)]
    assert rooms == list(range(11, TELLS_MAX + 11))


def test_an_address_that_nobody_wants_is_forgotten(rig: Rig) -> None:
    rig.book.want(ADDRESS, 1.0)
    rig.book.resolved(ADDRESS, contact())
    rig.book.tick(60.0)
    assert rig.book.address_of(PEER) == ADDRESS
    rig.book.resolved(ADDRESS, contact())
    rig.book.tick(62.0)
    assert rig.book.address_of(PEER) is None
    rig.book.resolved(ADDRESS, contact())  # late: nobody asks any more
    assert rig.book.address_of(PEER) is None


@pytest.mark.parametrize(("former", "new", "gone"), [
    ("pod", "pod", True), ("pod", "other", False), ("", "", False),
])  # fmt: skip
def test_e53_a_successor_found_in_the_same_pod_proves_the_former_dead(
    rig: Rig, former: str, new: str, gone: bool
) -> None:
    rig.peers.met(PEER, Welcome(intro=intro(PEER, pod_uid=former)), now=1.0)
    rig.book.want(ADDRESS, 1.0)
    rig.book.resolved(ADDRESS, contact(pod_uid=former))
    rig.book.resolved(ADDRESS, contact(OTHER, pod_uid=new))
    assert ((Change.GONE, PEER) in rig.peers.take_changes()) is gone
