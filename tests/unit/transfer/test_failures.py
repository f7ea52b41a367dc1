"""Deadlines, dead peers and the proof that memory is quiescent, for every backend."""

import numpy as np
import pytest

from pdcluster_worker.core.errors import TransferInvalid, TransferPeerLost, TransferTimeout
from pdcluster_worker.core.ports import WriteState
from tests.unit.transfer.receivers import Receiver
from tests.unit.transfer.writers import Writer, ids


def _stalled_write(writer: Writer, victim: Receiver) -> int:
    victim.stall()
    writer.transport.add_peer(victim.peer)
    handle = writer.post(victim.peer.agent, ids(1, 5), ids(3, 4), within_s=10.0)
    for _ in range(10):
        assert writer.transport.poll(handle) is WriteState.PENDING
    return handle


def test_a_late_write_times_out_and_settles_only_when_the_library_says_so(
    writer: Writer, victim: Receiver
) -> None:
    handle = _stalled_write(writer, victim)
    assert not writer.transport.settled(handle)
    writer.clock.shift_s = 10.5
    for _ in range(3):
        with pytest.raises(TransferTimeout):
            writer.transport.poll(handle)
        assert not writer.transport.settled(handle)
    victim.resume()
    writer.settle(handle)
    with pytest.raises(TransferTimeout):
        writer.transport.poll(handle)
    # This is why the receiver must not reuse its pages on a timer: the bytes did arrive.
    assert np.array_equal(victim.memory["kv"][[3, 4]], writer.memory["kv"][[1, 5]])
    writer.transport.release(handle)
    writer.transport.release(handle)
    writer.transport.remove_peer(victim.peer.agent)


def test_a_write_released_early_is_watched_until_it_settles(
    writer: Writer, victim: Receiver
) -> None:
    handle = _stalled_write(writer, victim)
    writer.transport.release(handle)
    assert not writer.transport.settled(handle)
    with pytest.raises(TransferInvalid):
        writer.transport.poll(handle)
    victim.resume()
    while not writer.transport.settled(handle):
        assert writer.transport.notices() == []
    writer.transport.remove_peer(victim.peer.agent)


def test_removing_a_peer_ends_what_was_released_early(writer: Writer, victim: Receiver) -> None:
    handle = _stalled_write(writer, victim)
    writer.transport.release(handle)
    writer.transport.remove_peer(victim.peer.agent)
    assert writer.transport.settled(handle)


def test_a_write_that_is_done_late_is_done(writer: Writer, receiver: Receiver) -> None:
    writer.transport.add_peer(receiver.peer)
    writer.put(receiver.peer.agent, [0], [0])  # connected: the next one ends inside its post
    handle = writer.post(receiver.peer.agent, ids(1), ids(2), within_s=5.0)
    writer.clock.shift_s = 6.0
    assert writer.transport.poll(handle) is WriteState.DONE
    assert len(receiver.arrivals(2)) == 2


def test_a_killed_peer_is_lost_and_its_successor_is_served(
    writer: Writer, victim: Receiver, receiver: Receiver
) -> None:
    agent = victim.peer.agent
    writer.transport.add_peer(victim.peer)
    writer.put(agent, [1], [1])
    victim.kill()
    handle = writer.post(agent, ids(1, 2), ids(4, 6))
    for _ in range(3):
        with pytest.raises(TransferPeerLost):
            writer.finish(handle)
        assert writer.transport.settled(handle)
    writer.transport.release(handle)
    writer.transport.release(handle)
    writer.transport.remove_peer(agent)
    assert writer.transport.notices() == []
    writer.transport.add_peer(receiver.peer)
    writer.put(receiver.peer.agent, [1], [1])
    receiver.arrivals(1)


def test_closing_with_writes_in_flight(writer: Writer, victim: Receiver) -> None:
    _stalled_write(writer, victim)
    writer.transport.close()
    assert writer.transport.notices() == []
