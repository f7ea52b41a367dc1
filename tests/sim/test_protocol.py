"""Single rules of the hand-off, each named after the report it answers."""

import numpy as np

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim.node import Answer, Node, Sizes
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.local import Abort
from pdcluster_worker.wire.notice import Notice, NoticeKind, unpack
from pdcluster_worker.wire.peer import Publish


def pair(sizes: Sizes | None = None) -> tuple[World, Node, Node]:
    """One of each role."""
    world = World(4)
    return world, world.add("prefill", "p", sizes=sizes), world.add("decode", "d", sizes=sizes)


def both(prefill: Node, decode: Node, room: int, prompt: list[int]) -> Answer:
    """Both legs; decode's answer."""
    prefill.submit(f"r{room}", prompt, room=room, prefill="p")
    return decode.submit(f"r{room}", prompt, room=room, prefill="p")


def writes_of(world: World) -> list[Write]:
    """The KV and row writes, as they are posted."""
    seen: list[Write] = []
    original = world.network.write

    def recording(source: Node, write: Write, *, now: float) -> None:
        if write.key:
            seen.append(write)
        original(source, write, now=now)

    world.network.write = recording  # type: ignore[method-assign]
    return seen


def test_f04_chunks_are_sent_in_whole_pages_and_the_last_says_so() -> None:
    """Pages of 4, chunks of 10, 25 tokens: pages [0, 2), [2, 5), [5, 7)."""
    world, prefill, decode = pair(Sizes(chunk_tokens=10))
    seen = writes_of(world)
    answer = both(prefill, decode, 1, list(range(1, 26)))
    world.run(2.0)
    assert answer.tokens == oracle(list(range(1, 26)), 8)
    chunks = [write.notice for write in seen if write.region == "kv"]
    assert [len(write.source) for write in seen if write.region == "kv"] == [2, 3, 2]
    assert [notice.chunk for notice in chunks] == [0, 1, 2]
    assert [notice.pages for notice in chunks] == [2, 5, 7]
    assert [notice.last for notice in chunks] == [False, False, True]
    assert [write.notice.kind for write in seen if write.region == "meta"] == [NoticeKind.ROW]


def test_e17_notices_of_a_former_use_of_the_room_are_dropped() -> None:
    """Trigger: a room is used again, and notices of its former use come in.
    Others: the old notices completed the new transfer.
    Here: every hand-off has a generation of its own; what names another is dropped and counted.
    Bound: none needed.
    """
    world, prefill, decode = pair()
    seen = writes_of(world)
    both(prefill, decode, 7, [1, 2, 3])
    world.run(2.0)
    old = [write.notice.pack() for write in seen]
    world.write_delay = lambda write: 0.5 if write.key else 0.001
    prefill.answers.clear()
    decode.answers.clear()
    answer = both(prefill, decode, 7, [9] * 30)
    for _ in range(40):
        decode.notices.extend(old)
        world.run(0.01)
        assert not answer.tokens, "a replayed notice completed the transfer"
    world.run(3.0)
    assert answer.tokens == oracle([9] * 30, 8)
    assert decode.pipeline.counts["notices_stale"] >= len(old)


def test_e17_a_notice_of_another_writer_is_dropped() -> None:
    world, prefill, decode = pair()
    world.write_delay = lambda write: 0.5 if write.key else 0.001
    answer = both(prefill, decode, 7, [9] * 30)
    world.run(0.3)
    for kind in (NoticeKind.CHUNK, NoticeKind.ROW):
        forged = Notice(
            kind=kind, writer="ab" * 16, reader=decode.instance, room=7, generation=1, pages=8,
            last=True,
        )  # fmt: skip
        assert unpack(forged.pack()) == forged
        decode.notices.append(forged.pack())
    world.run(0.1)
    assert not answer.tokens
    world.run(3.0)
    assert answer.tokens == oracle([9] * 30, 8)


def test_e46_pages_of_a_decode_whose_prefill_leg_never_comes_return() -> None:
    """Trigger: a router starts only the decode leg, again and again.
    Others: kept each destination for ever.
    Here: prefill keeps a bounded number for a while, then tells decode that nobody came.
    Bound: orphan_ttl_s and rooms_tracked_max.
    """
    limits = LimitSpec(orphan_ttl_s=2.0, transfer_timeout_s=30.0)
    world, prefill, decode = pair(Sizes(limits=limits))
    answer = decode.submit("r1", [1] * 20, room=1, prefill="p")
    world.run(1.0)
    assert decode.pools.pages.count().held == 5
    world.run(2.5)
    assert answer.failed is not None
    assert "no request came" in answer.failed.message
    assert decode.initial()
    assert prefill.initial()


def test_e77_an_abort_that_comes_before_the_request_ends_it() -> None:
    """Trigger: decode ends a room before prefill has seen its request.
    Others: dropped the unknown abort; prefill then waited for its limit.
    Here: prefill remembers it for a while and ends the request when it comes.
    Bound: orphan_ttl_s and rooms_tracked_max.
    """
    world, prefill, decode = pair()
    decode.submit("r1", [1] * 20, room=1, prefill="p")
    world.run(0.5)
    decode.pipeline.abort(Abort(rid="r1", reason="client gone"), world.now)
    world.run(0.5)
    first = prefill.submit("r1", [1] * 20, room=1, prefill="p")
    world.run(0.1)
    assert first.failed is not None
    assert first.failed.kind == "peer_refused"
    assert prefill.initial()
    assert decode.initial()


def test_e56_a_prefill_whose_decode_never_comes_ends_in_bounded_time() -> None:
    """Trigger: the decode leg never comes.
    Others: prefill waited for ever.
    Here: a room that nobody claims ends with an error that a router may try again.
    Bound: bootstrap_timeout_s.
    """
    world, prefill, _ = pair(Sizes(limits=LimitSpec(bootstrap_timeout_s=3.0)))
    first = prefill.submit("r1", [1] * 20, room=1, prefill="p")
    world.run(2.9)
    assert not first.ended
    world.run(0.3)
    assert first.failed is not None
    assert first.failed.kind == "bootstrap_timeout"


def test_e57_a_prefill_waits_for_a_decode_that_is_only_short_of_memory() -> None:
    """Trigger: decode is queued for memory longer than prefill waits for a decode.
    Others: one timer for both; a late destination then revived a room that had ended.
    Here: each side says which rooms it holds; queued ones have a limit of their own.
    Bound: queue_timeout_s while held, bootstrap_timeout_s otherwise.
    """
    limits = LimitSpec(bootstrap_timeout_s=2.0, queue_timeout_s=60.0)
    world, prefill, decode = pair(Sizes(pages=24, reserved=0, running_max=1, limits=limits))
    both(prefill, decode, 1, [1] * 80).tokens.clear()
    waiting = both(prefill, decode, 2, [2] * 80)
    decode.engine.launch = lambda steps, done_at: vars(decode.engine).update(  # type: ignore[method-assign]
        steps=steps, done_at=done_at + 0.5
    )
    world.run(4.0)
    assert not waiting.ended
    world.run(12.0)
    assert waiting.tokens == oracle([2] * 80, 8)


def test_e22_a_prefill_that_cannot_be_found_costs_only_its_own_requests() -> None:
    """Trigger: a bootstrap address answers nobody.
    Others: looked it up on the scheduler's thread and froze every request for seconds or for ever.
    Here: lookups run beside the loop, one for each address, at most one a second.
    Bound: handshake_timeout_s for its own requests; nothing for others.
    """
    world, prefill, decode = pair(Sizes(limits=LimitSpec(handshake_timeout_s=3.0)))
    lost = decode.submit("r1", [1] * 20, room=1, prefill="nowhere")
    served = both(prefill, decode, 2, [5] * 10)
    world.run(2.0)
    assert served.tokens == oracle([5] * 10, 8)
    world.run(1.5)
    assert lost.failed is not None
    assert lost.failed.kind == "handshake_timeout"
    assert "connection refused" in lost.failed.message
    assert decode.initial()


def test_e24_a_large_head_is_not_overtaken() -> None:
    """Trigger: small requests keep coming while a large one waits for memory.
    Others: let the small ones pass until the large one starved, or gave away room to grow.
    Here: first come, first served; admission leaves room for what runs to grow.
    Bound: queue_timeout_s.
    """
    world, prefill, decode = pair(Sizes(pages=24, reserved=0))
    published: list[int] = []

    def watch(body: object) -> bool:
        if isinstance(body, Publish):
            published.append(body.room)
        return False

    world.drop = watch
    for room, size in ((1, 60), (2, 90), (3, 4), (4, 4)):
        both(prefill, decode, room, [room] * size)
    world.run(10.0)
    assert published == [1, 2, 3, 4]


def test_legs_that_disagree_about_the_prompt_fail_both() -> None:
    world, prefill, decode = pair()
    first = prefill.submit("r1", [1] * 20, room=1, prefill="p")
    answer = decode.submit("r1", [1] * 21, room=1, prefill="p")
    world.run(2.0)
    assert first.failed is not None
    assert answer.failed is not None
    assert first.failed.kind == answer.failed.kind == "peer_incompatible"
    assert prefill.initial()
    assert decode.initial()


def test_no_byte_is_written_outside_of_what_was_published() -> None:
    world, prefill, decode = pair()
    granted: dict[int, set[int]] = {}

    def watch(body: object) -> bool:
        if isinstance(body, Publish):
            granted[body.room] = set(np.frombuffer(body.pages, "<i4").tolist())
        return False

    world.drop = watch
    seen = writes_of(world)
    for room in range(1, 12):
        both(prefill, decode, room, [room] * (7 * room % 50 + 1))
        world.run(0.03)
    world.run(5.0)
    for write in seen:
        if write.region == "kv":
            assert set(write.target.tolist()) <= granted[write.notice.room]
