"""Between prepare and post: nothing moves, nothing leaks; for every backend."""

import numpy as np
import pytest

from pdcluster_worker.core.errors import TransferInvalid, TransferPeerLost
from tests.unit.transfer.receivers import ITEMS, Receiver
from tests.unit.transfer.writers import FAR_FUTURE_S, Writer, ids


def _prepared(writer: Writer, receiver: Receiver, *, pages: int = 2) -> int:
    writer.transport.add_peer(receiver.peer)
    return writer.transport.prepare(
        agent=receiver.peer.agent,
        region="kv",
        source=ids(*range(pages)),
        target=ids(*range(pages)),
        notice=b"notice",
    )


def _post(writer: Writer, handle: int) -> None:
    writer.transport.post(handle, deadline=writer.clock.now() + FAR_FUTURE_S)


def test_the_bytes_are_those_of_the_moment_of_the_post(writer: Writer, receiver: Receiver) -> None:
    """A chunk's pages are computed while its write lies prepared."""
    handle = _prepared(writer, receiver)
    assert not receiver.memory["kv"].any()
    writer.memory["kv"][:2] = 77
    _post(writer, handle)
    writer.finish(handle)
    assert np.array_equal(receiver.memory["kv"][:2], writer.memory["kv"][:2])
    assert (receiver.memory["kv"][:2] == 77).all()
    receiver.arrivals(1)


def test_a_write_never_posted_can_be_given_back(writer: Writer, receiver: Receiver) -> None:
    handle = _prepared(writer, receiver)
    assert writer.transport.settled(handle)
    with pytest.raises(TransferInvalid, match="not posted"):
        writer.transport.poll(handle)
    with pytest.raises(TransferInvalid, match="not done"):
        writer.transport.stats(handle)
    with pytest.raises(TransferInvalid, match="release them first"):
        writer.transport.remove_peer(receiver.peer.agent)
    writer.transport.release(handle)
    writer.transport.release(handle)
    assert writer.transport.settled(handle)
    with pytest.raises(TransferInvalid, match="released"):
        _post(writer, handle)
    writer.transport.remove_peer(receiver.peer.agent)
    assert not receiver.memory["kv"].any()


def test_a_write_is_posted_once(small_posts: Writer, receiver: Receiver) -> None:
    handle = _prepared(small_posts, receiver, pages=ITEMS["kv"])
    _post(small_posts, handle)
    with pytest.raises(TransferInvalid, match="posted"):
        _post(small_posts, handle)
    small_posts.finish(handle)
    with pytest.raises(TransferInvalid, match="posted"):
        _post(small_posts, handle)
    receiver.arrivals(1)


def test_a_peer_that_dies_before_the_post_is_lost(writer: Writer, victim: Receiver) -> None:
    handle = _prepared(writer, victim)
    writer.put(victim.peer.agent, [1], [1])
    victim.kill()
    _post(writer, handle)
    with pytest.raises(TransferPeerLost):
        writer.finish(handle)
    assert writer.transport.settled(handle)
    writer.transport.release(handle)
    writer.transport.remove_peer(victim.peer.agent)


def test_closing_with_a_prepared_write(writer: Writer, receiver: Receiver) -> None:
    handle = _prepared(writer, receiver)
    writer.transport.close()
    assert writer.transport.settled(handle)
    assert not receiver.memory["kv"].any()
