"""What only NIXL has: its exceptions, its metadata, its own telemetry, warm connections, posts."""

from dataclasses import replace

import numpy as np
import pytest
from nixl_cu12 import _bindings, nixl_agent

from pdcluster_worker.core.errors import (
    TransferError,
    TransferInvalid,
    TransferPeerLost,
    TransferTimeout,
)
from pdcluster_worker.core.ports import Region, WriteState
from pdcluster_worker.transfer import nixl
from pdcluster_worker.transfer.base import TransportSetup
from tests.unit.transfer.receivers import ITEM_BYTES, Receiver
from tests.unit.transfer.writers import ShiftedClock, Writer, ids


@pytest.fixture
def backend() -> str:
    return "nixl"


def test_every_exception_of_the_library_is_mapped() -> None:
    found = {
        cls
        for cls in vars(_bindings).values()
        if isinstance(cls, type) and issubclass(cls, Exception)
    }
    assert found
    assert found == set(nixl.ERRORS)
    for cls in found:
        assert "while testing: why" in str(nixl.failure_of(cls("why"), "while testing").error())


def test_the_librarys_own_count_is_pages_and_rows(
    small_posts: Writer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry, not our arithmetic: the bytes that NIXL says it wrote are those of the request."""
    counted: list[int] = []
    original = nixl_agent.get_xfer_telemetry

    def spy(agent: nixl.Handle, part: nixl.Handle) -> nixl.Handle:
        telemetry = original(agent, part)
        counted.append(telemetry.totalBytes)
        return telemetry

    monkeypatch.setattr(nixl_agent, "get_xfer_telemetry", spy)
    small_posts.transport.add_peer(receiver.peer)
    told = 0
    for region, count in (("kv", 21), ("meta", 1)):
        items = ids(*range(count))
        handle = small_posts.post(receiver.peer.agent, items, items[::-1].copy(), region=region)
        small_posts.finish(handle)
        told += small_posts.transport.stats(handle).bytes
        small_posts.transport.release(handle)
    assert told == sum(counted) == 21 * ITEM_BYTES["kv"] + 1 * ITEM_BYTES["meta"]
    assert len(counted) == 6 + 1  # 21 pages in posts of four
    receiver.arrivals(2)


def test_one_poll_posts_at_most_one_part(small_posts: Writer, receiver: Receiver) -> None:
    small_posts.transport.add_peer(receiver.peer)
    small_posts.put(receiver.peer.agent, [0], [0])  # connected: each post below ends at once
    handle = small_posts.post(receiver.peer.agent, ids(*range(16)), ids(*range(16)))
    for part in range(1, 4):
        assert np.array_equal(
            receiver.memory["kv"][: 4 * part], small_posts.memory["kv"][: 4 * part]
        )
        assert not receiver.memory["kv"][4 * part :].any()
        state = small_posts.transport.poll(handle)
    assert state is WriteState.DONE
    assert np.array_equal(receiver.memory["kv"][:16], small_posts.memory["kv"][:16])
    receiver.arrivals(2)


def test_no_part_is_posted_past_the_deadline(small_posts: Writer, receiver: Receiver) -> None:
    small_posts.transport.add_peer(receiver.peer)
    small_posts.put(receiver.peer.agent, [0], [0])
    handle = small_posts.post(receiver.peer.agent, ids(*range(8)), ids(*range(8)), within_s=1.0)
    small_posts.clock.shift_s = 2.0
    with pytest.raises(TransferTimeout, match="4 of 8 items posted"):
        small_posts.transport.poll(handle)
    assert small_posts.transport.settled(handle)
    assert not receiver.memory["kv"][4:].any()
    receiver.arrivals(1)


def test_a_peer_killed_between_two_parts_is_lost(small_posts: Writer, victim: Receiver) -> None:
    small_posts.transport.add_peer(victim.peer)
    small_posts.put(victim.peer.agent, [0], [0])
    handle = small_posts.post(victim.peer.agent, ids(*range(64)), ids(*range(64)))
    assert small_posts.transport.poll(handle) is WriteState.PENDING
    victim.kill()
    with pytest.raises(TransferPeerLost):
        small_posts.finish(handle)
    assert small_posts.transport.settled(handle)
    small_posts.transport.release(handle)
    small_posts.transport.remove_peer(victim.peer.agent)


def test_a_greeted_peer_need_not_poll(writer: Writer, victim: Receiver) -> None:
    """Greeting connects: afterwards a write ends although its peer is stopped, as if it computed.

    So DONE is no proof that a peer lives.
    """
    writer.transport.add_peer(victim.peer)
    writer.put(victim.peer.agent, [0], [0])
    victim.arrivals(1)
    victim.stall()
    writer.put(victim.peer.agent, [1, 3], [2, 5])
    assert np.array_equal(victim.memory["kv"][[2, 5]], writer.memory["kv"][[1, 3]])
    victim.resume()
    victim.arrivals(1)


def test_a_region_beyond_what_the_peer_registered_is_refused(
    writer: Writer, receiver: Receiver
) -> None:
    kv, meta = receiver.peer.regions
    for wrong in (replace(kv, items=kv.items * 4096), replace(kv, address=kv.address + (1 << 30))):
        with pytest.raises(TransferInvalid, match="add peer"):
            writer.transport.add_peer(replace(receiver.peer, regions=(wrong, meta)))
    writer.transport.add_peer(receiver.peer)
    writer.put(receiver.peer.agent, [1], [1])
    receiver.arrivals(1)


@pytest.mark.parametrize("metadata", [b"", b"garbage", b"\0" * 4096])
def test_metadata_that_is_none_is_refused(
    writer: Writer, receiver: Receiver, metadata: bytes
) -> None:
    with pytest.raises(TransferInvalid, match="add peer"):
        writer.transport.add_peer(replace(receiver.peer, metadata=metadata))


def test_metadata_of_another_agent_is_refused(writer: Writer, receiver: Receiver) -> None:
    with pytest.raises(TransferInvalid, match="came as that of 'somebody'"):
        writer.transport.add_peer(replace(receiver.peer, agent="somebody"))
    writer.transport.add_peer(receiver.peer)
    with pytest.raises(TransferInvalid, match="came as that of 'somebody'"):
        writer.transport.add_peer(replace(receiver.peer, agent="somebody"))
    writer.put(receiver.peer.agent, [1], [1])  # the attempt did not cut the real one off
    receiver.arrivals(1)


def test_memory_that_cannot_be_registered_is_refused() -> None:
    region = Region(name="kv", address=4096, item_bytes=4096, items=4)
    with pytest.raises(TransferError, match="register memory"):
        nixl.NixlTransport(
            TransportSetup(clock=ShiftedClock(), regions=[replace(region, kind="VRAM")])
        )
