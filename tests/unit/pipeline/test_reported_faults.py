"""Faults that a cold reading of the pipelines found. Each docstring says what used to happen."""

import msgspec
import numpy as np
import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import TransferPeerLost, WireError
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.rows import RowAllocator
from pdcluster_worker.pipeline.effects import Launch, Resolve
from pdcluster_worker.sim.node import Answer, Node
from pdcluster_worker.sim.node import Sizes as WorldSizes
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.local import Tokens
from pdcluster_worker.wire.peer import (
    HEADER,
    Abort,
    Alive,
    FrameCodec,
    Publish,
    Refused,
    Rejoin,
    Welcome,
)
from tests.unit.pipeline.rig import OTHER, PEER, DecodeRig, PrefillRig, Sizes, intro


def pair(sizes: WorldSizes | None = None) -> tuple[World, Node, Node]:
    """One of each role."""
    world = World(4)
    return world, world.add("prefill", "p", sizes=sizes), world.add("decode", "d", sizes=sizes)


def both(nodes: tuple[Node, Node], room: int, length: int, *, max_new: int = 8) -> Answer:
    """Both legs; decode's answer."""
    for node in nodes:
        node.submit(f"r{room}", [room] * length, room=room, prefill="p", max_new=max_new)
    return nodes[1].answers[f"r{room}"]


def test_a_peer_that_the_transport_lost_is_asked_to_join_again() -> None:
    """`heard` turns LOST into WARMING at any frame, so `rejoin` never finds LOST: dead for ever."""
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.pipeline.write_failed(0, PEER, error=TransferPeerLost("cut"), now=rig.now)
    rig.collect()
    rig.frame(Alive())
    rig.publish(1, 8)
    assert rig.said(Rejoin), "nobody ever says Hello again"


def test_after_one_broken_connection_the_next_request_works() -> None:
    """The same, end to end: every later request of the pair times out."""
    world, prefill, decode = pair()
    both((prefill, decode), 1, 8)
    world.run(1.0)
    agent = prefill.pipeline
    agent.write_failed(0, decode.instance, error=TransferPeerLost("cut"), now=world.now)
    world.run(1.0)
    both((prefill, decode), 2, 8)
    world.run(5.0)
    answer = both((prefill, decode), 3, 8)
    world.run(5.0)
    assert answer.tokens == oracle([3] * 8, 8)


def test_a_late_sign_of_life_does_not_put_a_deadline_on_a_running_answer() -> None:
    """`_alive` sets `deadline` in any stage: a long answer ends with queue_timeout after 60 s."""
    rig = DecodeRig()
    rig.submit("a", 8, room=1, max_new_tokens=99)
    rig.reach()
    rig.deliver(1)
    rig.tick()
    assert rig.pipeline.stages() == {Stage.RUNNING: 1}
    rig.frame(Alive(rooms=((1, rig.published(1).generation),)))
    for _ in range(140):
        rig.frame(Alive())
        rig.tick(0.5)
    assert rig.failure("a") == ""


def test_e17_a_publish_that_comes_twice_never_serves_a_later_use_of_the_room() -> None:
    """The copy becomes an orphan; a request that reuses the room writes into pages of others."""
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    publish = rig.publish(1, 8)
    rig.frame(Abort(room=1, generation=1, kind="aborted", message="gone"))
    assert rig.initial()
    rig.frame(publish)  # sent once, delivered twice
    rig.submit("b", 8, room=1)
    rig.tick()
    assert not rig.of(Launch), "computes for pages that decode has taken back"


def test_a_running_request_is_not_starved_by_one_that_cannot_join() -> None:
    """The batch is full with one; the committed one holds the page it lacks: both hang."""
    world, prefill, decode = pair(WorldSizes(pages=8, reserved=0, running_max=1))
    first = both((prefill, decode), 1, 16, max_new=17)
    second = both((prefill, decode), 2, 4, max_new=8)
    world.run(200.0)
    assert first.ended
    assert second.ended


def test_a_running_request_is_not_starved_by_quarantined_pages() -> None:
    """Pages that no proof ever frees count as `others_hold`: it sits out every pass for ever."""
    rig = DecodeRig(Sizes(pages=12))
    rig.submit("a", 16, room=1, max_new_tokens=33)
    rig.submit("b", 8, room=2, max_new_tokens=1)
    rig.reach()
    rig.deliver(1)
    rig.abort("b")
    for _ in range(800):
        rig.tick(0.5)
        if not rig.idle:
            rig.results()
    assert any(not isinstance(m, Tokens) or m.finish for m in rig.told("a"))


@pytest.mark.parametrize(
    "changes",
    [
        {"pages": b"abc"},
        {"row": 1 << 40},
        {"row": -1},
        {"generation": -1},
        {"generation": 1 << 64},
        {"pages": b"", "start_page": 2},
        {"pages": b"\1\0\0\0" * 4, "start_page": -2},
    ],
    ids=str,
)
def test_an_impossible_publish_is_refused(changes: dict[str, int | bytes]) -> None:
    """ValueError, OverflowError, struct.error, AssertionError; a negative start_page is served."""
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    fields = {
        "room": 1, "generation": 1, "start_page": 0, "row": 3, "prompt_tokens": 8,
        "pages": b"\1\0\0\0\2\0\0\0", **changes,
    }  # fmt: skip
    try:
        body = msgspec.convert(fields, Publish)
    except msgspec.ValidationError:
        return  # the frame's own type refuses it: as good
    rig.frame(body)
    rig.tick()
    if rig.of(Launch):
        rig.results()
    for write in rig.writes():
        assert (write.target >= 0).all()
        write.notice.pack()
    assert not rig.writes()


def test_e22_a_warm_up_that_always_fails_does_not_void_the_throttle_of_lookups() -> None:
    """`again` sets next_at to 0: one HTTP lookup per round trip, hundreds a second."""
    rig = DecodeRig()
    rig.submit("a", 8, room=1)
    for _ in range(100):  # 1 s
        rig.tick()
        rig.resolve()
        rig.frame(Welcome(intro=intro(PEER)))
        rig.pipeline.write_failed(0, PEER, error=TransferPeerLost("cut"), now=rig.now)
        rig.now += 0.01
    assert len(rig.of(Resolve)) <= 3


def test_refused_requests_do_not_grow_the_address_book_without_limit() -> None:
    """A client names hosts; each stays, and is looked up every second, for a minute."""
    world, _, decode = pair(WorldSizes(pages=8, limits=LimitSpec(rooms_tracked_max=16)))
    for number in range(2000):
        decode.submit(f"r{number}", [1] * 99, room=number + 1, prefill=f"host{number}")
    asked: list[object] = []
    world.network.resolve = lambda *a, **k: asked.append(a)  # type: ignore[method-assign]
    world.run(0.1)
    assert len(asked) <= 256, "more than the rendezvous client takes: good addresses starve"


def test_e20_a_second_decode_does_not_take_over_a_published_room() -> None:
    """The table of orphans keeps the newest: the first, which came rightly, is refused."""
    rig = PrefillRig()
    rig.greet(OTHER)
    rig.publish(1, 8, generation=1)
    rig.forget()
    rig.publish(1, 8, generation=9, sender=OTHER)
    refused = rig.said(Refused)
    assert [r.generation for r in refused] == [9]


def test_an_abort_whose_publish_was_lost_ends_the_waiting_leg() -> None:
    """It is acknowledged, and the client of prefill's leg waits for bootstrap_timeout."""
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.frame(Abort(room=1, generation=1, kind="transfer_timeout", message="late"))
    assert rig.failure("a") == "peer_refused"


def test_pages_in_quarantine_do_not_keep_the_loop_polling() -> None:
    """A thousand turns a second for as long as the proof does not come."""
    rig = DecodeRig()
    rig.submit("a", 8, room=1)
    rig.reach()
    rig.tick(20.0)  # prefill is silent: lost
    assert rig.failure("a") == "peer_lost"
    assert not rig.pipeline.waiting_for_peer()


def test_row_zero_cannot_be_released() -> None:
    """Unit -1 is the last one: it is freed instead, and row 0 is handed out."""
    rows = RowAllocator(3)
    assert [rows.allocate(), rows.allocate()] == [1, 2]
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        rows.release(0)


def test_a_page_outside_the_pool_cannot_be_released() -> None:
    """The same for page -1."""
    pages = PageAllocator(4)
    assert pages.allocate(4) is not None
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        pages.release(np.array([-1], np.int32))


def test_a_deep_frame_is_a_wire_error() -> None:
    """RecursionError, which `wire.codec` catches and `wire.peer` does not."""
    codec = FrameCodec(cluster="c", token="t", instance="me", frame_bytes_max=1 << 20)
    head = b"\x94" + b"".join(msgspec.msgpack.encode(text) for text in ("c", "you", "me"))
    body = msgspec.msgpack.encode({"type": "Bye", "z": None})
    assert body.endswith(b"\xc0")
    payload = head + body[:-1] + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(WireError):
        codec.decode(HEADER + codec._tag(payload) + payload)


def test_a_silent_peer_that_the_transport_lost_is_not_ready_when_heard_again() -> None:
    """`broken` does nothing while LOST, so the next frame makes it READY on a dead connection."""
    rig = PrefillRig()
    rig.tick(20.0)
    assert rig.pipeline.peer_states() == {PEER: "lost"}
    rig.pipeline.write_failed(0, PEER, error=TransferPeerLost("cut"), now=rig.now)
    rig.frame(Alive())
    assert rig.pipeline.peer_states() != {PEER: "ready"}


def test_chunks_beyond_the_last_one_do_not_count() -> None:
    """Chunks 5 and 1 (last) make two of two: committed although chunk 0 never came."""
    rig = DecodeRig()
    rig.submit("a", 8, room=1)
    rig.reach()
    rig.chunk(1, number=5, last=False, pages=1)
    rig.chunk(1, number=1, last=True)
    rig.row(1)
    assert not any(isinstance(m, Tokens) for m in rig.told("a"))


def test_a_decode_that_was_silent_is_told_that_its_published_room_was_dropped() -> None:
    """H.8: orphans of a LOST peer go without a word; when it is heard again it waits on."""
    rig = PrefillRig()
    rig.publish(1, 8)
    rig.tick(20.0)
    rig.frame(Alive())
    rig.tick(70.0)
    assert rig.said(Refused)


def test_an_abort_that_is_repeated_after_its_end_does_not_bury_the_room() -> None:
    """Decode repeats it each second until acknowledged; the copy leaves a tombstone for 60 s."""
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    abort = Abort(room=1, generation=1, kind="aborted", message="gone")
    rig.frame(abort)
    rig.frame(abort)
    rig.publish(1, 8, generation=2)
    rig.submit("b", 8, room=1)
    assert rig.failure("b") == ""


def test_a_name_is_free_once_its_answer_was_finished_by_the_frontend() -> None:
    """Abort(finished) keeps the rid until the pass ends: the next turn of a chat is a 400."""
    rig = DecodeRig()
    rig.submit("a", 8, room=1)
    rig.reach()
    rig.deliver(1)
    rig.tick()
    rig.abort("a", finished=True)
    rig.submit("a", 8, room=2)
    assert rig.failure("a") == ""
