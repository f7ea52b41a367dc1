"""The hook: what a test or the simulator can do to a loopback write."""

import numpy as np
import pytest

from pdcluster_worker.core.errors import (
    TransferError,
    TransferInvalid,
    TransferPeerLost,
    TransferTimeout,
    WorkerError,
)
from pdcluster_worker.core.ports import Region, WriteState
from pdcluster_worker.transfer import create_transport
from pdcluster_worker.transfer.loopback import LoopbackNetwork, LoopbackWrite, Verdict
from tests.unit.transfer.receivers import NearReceiver
from tests.unit.transfer.writers import ShiftedClock, Writer, ids


@pytest.fixture
def backend() -> str:
    return "loopback"


def test_a_hook_sees_the_write_and_can_delay_it(
    writer: Writer, network: LoopbackNetwork, receiver: NearReceiver
) -> None:
    seen: list[LoopbackWrite] = []

    def slow(write: LoopbackWrite) -> Verdict:
        seen.append(write)
        return Verdict.GO if write.age_s >= 5.0 else Verdict.WAIT

    network.hook = slow
    writer.transport.add_peer(receiver.peer)
    handle = writer.post(receiver.peer.agent, ids(1, 2), ids(3, 4), notice=b"n")
    assert writer.transport.poll(handle) is WriteState.PENDING
    assert not receiver.memory["kv"].any()
    writer.clock.shift_s = 5.0
    assert writer.transport.poll(handle) is WriteState.DONE
    assert np.array_equal(receiver.memory["kv"][3:5], writer.memory["kv"][1:3])
    assert writer.transport.stats(handle).seconds >= 5.0
    first = seen[0]
    assert (first.writer, first.agent) == (writer.transport.local().agent, receiver.peer.agent)
    assert (first.region, first.items, first.notice) == ("kv", 2, b"n")
    receiver.arrivals(1)


@pytest.mark.parametrize(
    ("verdict", "error"), [(Verdict.FAIL, TransferError), (Verdict.LOST, TransferPeerLost)]
)
def test_a_hook_can_fail_a_write(
    writer: Writer,
    network: LoopbackNetwork,
    receiver: NearReceiver,
    verdict: Verdict,
    error: type[WorkerError],
) -> None:
    network.hook = lambda _: verdict
    writer.transport.add_peer(receiver.peer)
    handle = writer.post(receiver.peer.agent, ids(1), ids(3))
    with pytest.raises(WorkerError) as caught:
        writer.transport.poll(handle)
    assert type(caught.value) is error
    assert writer.transport.settled(handle)
    assert not receiver.memory["kv"].any()
    receiver.arrivals(0)


def test_a_write_held_past_its_deadline_settles_when_its_peer_dies(
    writer: Writer, receiver: NearReceiver
) -> None:
    receiver.stall()
    writer.transport.add_peer(receiver.peer)
    handle = writer.post(receiver.peer.agent, ids(1), ids(3), within_s=1.0)
    writer.clock.shift_s = 2.0
    with pytest.raises(TransferTimeout):
        writer.transport.poll(handle)
    assert not writer.transport.settled(handle)
    receiver.kill()
    assert writer.transport.settled(handle)


def test_bytes_are_moved_before_their_notice_is_delivered(
    writer: Writer, receiver: NearReceiver
) -> None:
    writer.transport.add_peer(receiver.peer)
    handle = writer.post(receiver.peer.agent, ids(1), ids(3))
    assert np.array_equal(receiver.memory["kv"][3], writer.memory["kv"][1])
    receiver.arrivals(0)
    writer.finish(handle)
    receiver.arrivals(1)


def test_a_peer_that_is_gone_cannot_be_added(
    writer: Writer, network: LoopbackNetwork, receiver: NearReceiver
) -> None:
    network.kill(receiver.peer.agent)
    with pytest.raises(TransferPeerLost):
        writer.transport.add_peer(receiver.peer)


def test_device_memory_is_refused() -> None:
    region = Region(name="kv", address=4096, item_bytes=16, items=4, kind="VRAM")
    with pytest.raises(TransferInvalid, match="host memory"):
        create_transport("loopback", clock=ShiftedClock(), regions=[region])
