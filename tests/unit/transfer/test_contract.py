"""The transfer contract, for every backend of the registry."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pdcluster_worker.core.errors import TransferInvalid
from pdcluster_worker.core.ports import PageIds, WriteState
from pdcluster_worker.transfer import create_transport
from pdcluster_worker.transfer.base import NOTICE_BYTES_MAX
from pdcluster_worker.transfer.runs import count_runs
from tests.unit.transfer.receivers import ITEM_BYTES, ITEMS, Receiver, checksum
from tests.unit.transfer.writers import ShiftedClock, Writer, ids

PAGES: dict[str, tuple[Iterable[int], Iterable[int]]] = {
    "one": ([3], [60]),
    "contiguous": (range(8, 24), range(40, 56)),
    "scattered": ([5, 1, 9, 63, 0], [0, 63, 2, 7, 31]),
    "mixed": ([1, 2, 3, 9, 20, 21], [10, 11, 12, 40, 5, 6]),
    "gap on one side": ([1, 2, 3], [1, 2, 4]),
    "descending": ([3, 2, 1], [1, 2, 3]),
    "everything": (range(64), range(64)),
}
permutation = st.permutations(range(ITEMS["kv"]))


@pytest.mark.parametrize("shape", PAGES)
def test_the_named_pages_arrive_and_no_others(
    writer: Writer, receiver: Receiver, shape: str
) -> None:
    source, target = (ids(*side) for side in PAGES[shape])
    writer.transport.add_peer(receiver.peer)
    writer.put(receiver.peer.agent, source.tolist(), target.tolist())
    expected = np.zeros_like(receiver.memory["kv"])
    expected[target] = writer.memory["kv"][source]
    assert np.array_equal(receiver.memory["kv"], expected)
    assert not receiver.memory["meta"].any()
    receiver.arrivals(1)


@given(source=permutation, target=permutation, count=st.integers(1, ITEMS["kv"]))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_pages_arrive_in_posts_of_any_size(
    small_posts: Writer, receiver: Receiver, source: list[int], target: list[int], count: int
) -> None:
    writer, agent = small_posts, receiver.peer.agent
    writer.transport.add_peer(receiver.peer)
    expected = receiver.memory["kv"].copy()
    expected[target[:count]] = writer.memory["kv"][source[:count]]
    writer.put(agent, source[:count], target[:count])
    assert np.array_equal(receiver.memory["kv"], expected)
    receiver.arrivals(1)


def test_indices_may_change_after_a_write_was_posted(
    small_posts: Writer, receiver: Receiver
) -> None:
    small_posts.transport.add_peer(receiver.peer)
    source, target = ids(*range(16)), ids(*range(16, 32))
    handle = small_posts.post(receiver.peer.agent, source, target)
    source[:] = 63
    target[:] = 0
    small_posts.finish(handle)
    assert np.array_equal(receiver.memory["kv"][16:32], small_posts.memory["kv"][:16])
    assert not receiver.memory["kv"][0].any()
    receiver.arrivals(1)


def test_a_notice_comes_after_all_data_and_names_the_writer(
    small_posts: Writer, receiver: Receiver
) -> None:
    small_posts.transport.add_peer(receiver.peer)
    handle = small_posts.post(
        receiver.peer.agent, ids(*range(64)), ids(*range(64)), notice=b"x" * NOTICE_BYTES_MAX
    )
    small_posts.finish(handle)
    [(agent, notice, seen)] = receiver.arrivals(1)
    assert agent == small_posts.transport.local().agent
    assert notice == b"x" * NOTICE_BYTES_MAX
    assert seen == checksum(small_posts.memory["kv"])


def test_notices_of_one_writer_keep_their_order(writer: Writer, receiver: Receiver) -> None:
    writer.transport.add_peer(receiver.peer)
    for number in range(20):
        handle = writer.post(receiver.peer.agent, ids(1), ids(2), notice=bytes([number]))
        writer.finish(handle)
        writer.transport.release(handle)
    assert [notice for _, notice, _ in receiver.arrivals(20)] == [bytes([n]) for n in range(20)]


def test_an_empty_notice_is_none(writer: Writer, receiver: Receiver) -> None:
    writer.transport.add_peer(receiver.peer)
    for notice in (b"", b"second"):
        writer.finish(writer.post(receiver.peer.agent, ids(1), ids(2), notice=notice))
    assert [notice for _, notice, _ in receiver.arrivals(1)] == [b"second"]


def test_stats_count_pages_rows_and_merged_runs(small_posts: Writer, receiver: Receiver) -> None:
    small_posts.transport.add_peer(receiver.peer)
    agent = receiver.peer.agent
    writes = {"kv": (ids(1, 2, 3, 9), ids(10, 11, 12, 40)), "meta": (ids(4), ids(7))}
    moved = 0
    for region, (source, target) in writes.items():
        handle = small_posts.post(agent, source, target, region=region)
        small_posts.finish(handle)
        stats = small_posts.transport.stats(handle)
        assert stats.descriptors == count_runs(source, target)
        assert stats.seconds >= 0.0
        moved += stats.bytes
        small_posts.transport.release(handle)
    assert moved == 4 * ITEM_BYTES["kv"] + ITEM_BYTES["meta"]
    assert np.array_equal(receiver.memory["meta"][7], small_posts.memory["meta"][4])
    receiver.arrivals(2)


def test_an_agent_can_write_to_itself(writer: Writer) -> None:
    peer = writer.transport.local()
    writer.transport.add_peer(peer)
    writer.put(peer.agent, [1, 2], [40, 50])
    assert np.array_equal(writer.memory["kv"][[40, 50]], writer.memory["kv"][[1, 2]])
    assert writer.transport.notices() == [(peer.agent, b"notice")]


BAD_WRITES: dict[str, tuple[NDArray[Any], PageIds, str]] = {
    "target too high": (ids(0), ids(ITEMS["kv"]), "leave region"),
    "target negative": (ids(0, 1), ids(5, -1), "leave region"),
    "source too high": (ids(1, ITEMS["kv"]), ids(0, 1), "leave region"),
    "source negative": (ids(-1), ids(0), "leave region"),
    "unequal lengths": (ids(1, 2), ids(1), "equal length"),
    "no pages": (ids(), ids(), "equal length"),
    "a matrix": (ids(1, 2).reshape(1, 2), ids(1, 2).reshape(1, 2), "equal length"),
    "int64": (ids(1).astype(np.int64), ids(1), "int32"),
}


@pytest.mark.parametrize("case", BAD_WRITES)
def test_impossible_pages_are_refused_before_a_byte_moves(
    writer: Writer, receiver: Receiver, case: str
) -> None:
    source, target, message = BAD_WRITES[case]
    writer.transport.add_peer(receiver.peer)
    with pytest.raises(TransferInvalid, match=message):
        writer.post(receiver.peer.agent, source, target)
    assert not receiver.memory["kv"].any()


def test_other_impossible_writes_are_refused(writer: Writer, receiver: Receiver) -> None:
    with pytest.raises(TransferInvalid, match="unknown"):
        writer.post(receiver.peer.agent, ids(1), ids(1))
    writer.transport.add_peer(receiver.peer)
    with pytest.raises(TransferInvalid, match="no region 'other'"):
        writer.post(receiver.peer.agent, ids(1), ids(1), region="other")
    with pytest.raises(TransferInvalid, match="513 bytes"):
        writer.post(receiver.peer.agent, ids(1), ids(1), notice=b"x" * 513)


def test_a_released_handle_is_gone_and_releasing_twice_is_safe(
    writer: Writer, receiver: Receiver
) -> None:
    writer.transport.add_peer(receiver.peer)
    handle = writer.post(receiver.peer.agent, ids(1), ids(1))
    with pytest.raises(TransferInvalid, match="not done"):
        writer.transport.stats(handle)
    writer.finish(handle)
    assert writer.transport.poll(handle) is WriteState.DONE
    writer.transport.release(handle)
    writer.transport.release(handle)
    writer.transport.release(12345)
    assert writer.transport.settled(handle)
    with pytest.raises(TransferInvalid, match="released"):
        writer.transport.poll(handle)
    with pytest.raises(TransferInvalid, match="released"):
        writer.transport.stats(handle)
    receiver.arrivals(1)


def test_adding_twice_is_a_no_op_and_another_story_is_refused(
    writer: Writer, receiver: Receiver
) -> None:
    writer.transport.add_peer(receiver.peer)
    writer.transport.add_peer(receiver.peer)
    with pytest.raises(TransferInvalid, match="other metadata"):
        writer.transport.add_peer(replace(receiver.peer, regions=receiver.peer.regions[:1]))
    writer.put(receiver.peer.agent, [1], [1])
    receiver.arrivals(1)


def test_a_peer_can_be_removed_and_added_again(writer: Writer, receiver: Receiver) -> None:
    agent = receiver.peer.agent
    writer.transport.remove_peer(agent)  # unknown: ignored
    for page in (1, 2):
        writer.transport.add_peer(receiver.peer)
        handle = writer.post(agent, ids(page), ids(page))
        writer.finish(handle)
        with pytest.raises(TransferInvalid, match="release them first"):
            writer.transport.remove_peer(agent)
        writer.transport.release(handle)
        receiver.arrivals(1)
        writer.transport.remove_peer(agent)
        writer.transport.remove_peer(agent)
        with pytest.raises(TransferInvalid, match="unknown"):
            writer.post(agent, ids(1), ids(1))
    assert np.array_equal(receiver.memory["kv"][1:3], writer.memory["kv"][1:3])


def test_a_peer_of_another_geometry_is_refused(writer: Writer, receiver: Receiver) -> None:
    kv, meta = receiver.peer.regions
    half = replace(kv, item_bytes=kv.item_bytes // 2, items=kv.items * 2)
    for wrong, message in (
        ((half, meta), "items of 512 bytes, ours have 1024"),
        ((kv, replace(kv)), "twice"),
        ((replace(kv, address=0), meta), "no memory"),
        ((replace(kv, items=1 << 40), meta), "address space"),
        ((replace(kv, kind="TAPE"), meta), "unknown kind"),
    ):
        with pytest.raises(TransferInvalid, match=message):
            writer.transport.add_peer(replace(receiver.peer, regions=wrong))
    writer.transport.add_peer(receiver.peer)  # the refusals left nothing behind
    writer.put(receiver.peer.agent, [1], [1])
    receiver.arrivals(1)


def test_closing_is_idempotent_and_final(writer: Writer, receiver: Receiver) -> None:
    writer.transport.add_peer(receiver.peer)
    held = writer.post(receiver.peer.agent, ids(1), ids(1))
    writer.finish(held)
    writer.transport.close()
    writer.transport.close()
    writer.transport.release(held)
    assert writer.transport.settled(held)
    assert writer.transport.notices() == []
    with pytest.raises(TransferInvalid, match="unknown"):
        writer.post(receiver.peer.agent, ids(1), ids(1))
    with pytest.raises(TransferInvalid, match="closed"):
        writer.transport.add_peer(receiver.peer)
    receiver.arrivals(1)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match=r"allowed are \['loopback', 'nixl'\]"):
        create_transport("carrier-pigeon", clock=ShiftedClock(), regions=())
