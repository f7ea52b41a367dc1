"""Hand-offs in the simulated world: equality, faults, and everything back to initial."""

import random

import pytest

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.sim.node import Answer, Node, Sizes
from pdcluster_worker.sim.toy import oracle
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.local import Abort as LocalAbort
from pdcluster_worker.wire.local import Decline, Hop
from pdcluster_worker.wire.peer import Abort, AbortAck


def pair(seed: int = 0, sizes: Sizes | None = None) -> tuple[World, Node, Node]:
    world = World(seed)
    prefill = world.add("prefill", "p", sizes=sizes)
    decode = world.add("decode", "d", sizes=sizes)
    return world, prefill, decode


def ask(
    prefill: Node, decode: Node, prompt: list[int], *, room: int, max_new: int = 8
) -> tuple[Answer, Answer]:
    rid = f"r{room}"
    return (
        prefill.submit(rid, prompt, room=room, prefill="p", max_new=max_new),
        decode.submit(rid, prompt, room=room, prefill="p", max_new=max_new),
    )


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100])
def test_answer_equals_oracle(length: int) -> None:
    world, prefill, decode = pair(seed=length)
    prompt = [(i * 37 + length) % 250 + 1 for i in range(length)]
    first, answer = ask(prefill, decode, prompt, room=5)
    world.run(2.0)
    assert answer.tokens == oracle(prompt, 8)
    assert first.tokens == oracle(prompt, 1)
    assert first.finish == answer.finish == "length"
    assert prefill.initial()
    assert decode.initial()


@pytest.mark.parametrize("seed", range(6))
def test_many_at_once_with_scarce_pages(seed: int) -> None:
    world, prefill, decode = pair(seed, Sizes(pages=40, running_max=4))
    dice = random.Random(seed)
    answers = []
    for room in range(1, 25):
        prompt = [dice.randrange(1, 250) for _ in range(dice.randrange(1, 60))]
        count = dice.randrange(1, 40)
        answers.append((prompt, count, *ask(prefill, decode, prompt, room=room, max_new=count)))
        world.run(dice.uniform(0, 0.05))
    world.run(30.0)
    for prompt, count, first, answer in answers:
        assert first.finish == "length", first
        assert answer.tokens == oracle(prompt, count), answer
    assert prefill.initial()
    assert decode.initial()


def test_growth_beyond_the_pool_retracts_and_resumes() -> None:
    world, prefill, decode = pair(3, Sizes(pages=24, reserved=0))
    asked = [[room, room + 1, room + 2] for room in range(1, 7)]
    answers = [ask(prefill, decode, p, room=i + 1, max_new=60)[1] for i, p in enumerate(asked)]
    world.run(60.0)
    assert decode.pipeline.counts["retractions"] > 0
    for prompt, answer in zip(asked, answers, strict=True):
        assert answer.failed is None
        assert answer.tokens == oracle(prompt, 60)
    assert decode.initial()


def test_prompt_beyond_capacity_is_refused_on_both_legs() -> None:
    world, prefill, decode = pair(sizes=Sizes(pages=8))
    first, answer = ask(prefill, decode, [1] * 33, room=9)
    world.run(1.0)
    assert first.failed is not None
    assert answer.failed is not None
    assert first.failed.kind == answer.failed.kind == "context_length_exceeded"
    assert prefill.initial()
    assert decode.initial()


def test_prompt_at_capacity_is_served() -> None:
    world, prefill, decode = pair(sizes=Sizes(pages=8))
    prompt = list(range(1, 33))
    _, answer = ask(prefill, decode, prompt, room=9)
    world.run(1.0)
    assert answer.tokens == oracle(prompt, 1)
    assert answer.finish == "length"


def test_e48_refusal_of_decode_alone_ends_prefill() -> None:
    """Trigger: decode refuses a request before it has published anything.
    Others: prefill kept the request and its pages.
    Here: decode tells prefill by address and room, with the client's own reason.
    Bound: one lookup and one frame.
    """
    world = World()
    prefill = world.add("prefill", "p", sizes=Sizes(pages=64))
    decode = world.add("decode", "d", sizes=Sizes(pages=8))
    first, answer = ask(prefill, decode, [1] * 40, room=3)
    world.run(3.0)
    assert answer.failed is not None
    assert answer.failed.kind == "context_length_exceeded"
    assert first.failed is not None
    # The client's fault, on either leg: a router must not try it again elsewhere.
    assert first.failed.kind == "context_length_exceeded"
    assert prefill.initial()


def test_refusal_of_prefill_alone_ends_decode() -> None:
    world = World()
    prefill = world.add("prefill", "p", sizes=Sizes(pages=8))
    decode = world.add("decode", "d", sizes=Sizes(pages=64))
    first, answer = ask(prefill, decode, [1] * 40, room=3)
    world.run(3.0)
    assert first.failed is not None
    assert answer.failed is not None
    assert answer.failed.kind == "context_length_exceeded"
    assert decode.initial()


@pytest.mark.parametrize("declining", ["prefill", "decode"])
@pytest.mark.parametrize("first", [True, False])
def test_a_room_that_a_frontend_declines_ends_the_other_leg(declining: str, first: bool) -> None:
    world, prefill, decode = pair()
    here, other = (prefill, decode) if declining == "prefill" else (decode, prefill)
    hop = Hop(host="p", port=8998, room=3)
    decline = Decline(hop=hop, kind="draining", message="not now")
    if first:
        here.pipeline.decline(decline, world.now)
        world.run(0.3)
    answer = other.submit("r3", [1] * 40, room=3, prefill="p")
    world.run(0.3)
    if not first:
        here.pipeline.decline(decline, world.now)
    world.run(3.0)
    assert answer.failed is not None
    assert answer.failed.kind == ("draining" if declining == "prefill" else "peer_refused")
    assert prefill.initial()
    assert decode.initial()


def test_declining_a_room_that_is_in_use_harms_nobody() -> None:
    world, prefill, decode = pair()
    first, answer = ask(prefill, decode, [1] * 40, room=3)
    for node in (prefill, decode):
        hop = Hop(host="p", port=8998, room=3)
        node.pipeline.decline(Decline(hop=hop, kind="draining", message="not now"), world.now)
    world.run(3.0)
    assert first.finish == answer.finish == "length"


def test_an_abort_that_was_asked_for_is_one_on_both_legs() -> None:
    world, prefill, decode = pair()
    first, _ = ask(prefill, decode, [1] * 200, room=3)
    world.run(0.01)
    decode.pipeline.abort(LocalAbort(rid="r3", reason="asked for", kind="aborted"), world.now)
    world.run(3.0)
    assert first.failed is not None
    assert first.failed.kind == "aborted"
    assert prefill.initial()
    assert decode.initial()


@pytest.mark.parametrize("left", ["p", "d"])
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03])
def test_a_client_that_leaves_one_leg_is_no_abort_for_the_one_at_the_other(
    left: str, after_s: float
) -> None:
    world, prefill, decode = pair()
    answers = dict(zip("pd", ask(prefill, decode, [1] * 200, room=3), strict=True))
    world.run(after_s)
    world.nodes[left].pipeline.abort(LocalAbort(rid="r3", reason="client gone"), world.now)
    world.run(3.0)
    other = answers["d" if left == "p" else "p"]
    assert other.failed is not None
    assert other.failed.kind == "peer_refused"
    assert prefill.initial()
    assert decode.initial()


def test_e20_two_requests_in_one_room_never_get_each_others_answer() -> None:
    """Each leg came once, so nothing is in use twice; only the prompts tell them apart."""
    world, prefill, decode = pair()
    first = prefill.submit("one", [1] * 8, room=3, prefill="p")
    answer = decode.submit("two", [2] * 8, room=3, prefill="p")
    world.run(3.0)
    for ended in (first, answer):
        assert ended.failed is not None
        assert ended.failed.kind == "peer_incompatible"
        assert "disagree about the prompt" in ended.failed.message
    assert prefill.initial()
    assert decode.initial()


def test_e12_a_room_used_again_is_refused_and_the_first_is_unharmed() -> None:
    """Trigger: a router tries again with the room of a request that is still live.
    Others: the two mixed, and one client got the other's tokens.
    Here: a room in use is refused on both legs; the first goes on.
    Bound: at once.
    """
    world, prefill, decode = pair()
    prompt = [5, 6, 7]
    _, answer = ask(prefill, decode, prompt, room=4)
    world.nodes["p"].submit("other", [9], room=4, prefill="p")
    second = world.nodes["d"].submit("other", [9], room=4, prefill="p")
    world.run(2.0)
    assert second.failed is not None
    assert second.failed.kind == "room_conflict"
    assert answer.tokens == oracle(prompt, 8)


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("leg", ["p", "d"])
def test_client_gone_at_any_moment(moment: float, leg: str) -> None:
    world, prefill, decode = pair(7)
    ask(prefill, decode, list(range(1, 90)), room=2, max_new=30)
    _, other = ask(prefill, decode, [1, 2, 3], room=3)
    world.run(moment)
    world.nodes[leg].pipeline.abort(LocalAbort(rid="r2", reason="client gone"), world.now)
    world.run(5.0)
    assert other.tokens == oracle([1, 2, 3], 8)
    assert prefill.initial()
    assert decode.initial()
    assert decode.answers["r2"].ended
    assert prefill.answers["r2"].ended


def test_e01_late_write_never_lands_in_pages_of_another() -> None:
    """Trigger: decode ends a hand-off while its pages are still being written.
    Others: freed the pages; the late write put one client's text into another's answer.
    Here: the pages stay in quarantine until prefill proves that it has stopped.
    Bound: the write's own end, one frame, or a new process in the same pod; never time alone.
    """
    world, prefill, decode = pair(1, Sizes(pages=12, limits=LimitSpec(quarantine_percent_max=100)))
    world.write_delay = lambda write: 3.0 if write.key == 1 else 0.001
    ask(prefill, decode, [9] * 40, room=1)
    world.run(0.5)
    decode.pipeline.abort(LocalAbort(rid="r1", reason="client gone"), world.now)
    prompt = list(range(1, 30))
    _, answer = ask(prefill, decode, prompt, room=2)
    world.run(0.5)
    assert decode.pools.pages.count().quarantined == 10
    world.run(10.0)
    assert answer.tokens == oracle(prompt, 8)
    assert prefill.initial()
    assert decode.initial()


def test_lost_abort_is_said_again() -> None:
    world, prefill, decode = pair(2)
    lost: list[object] = []

    def drop(body: object) -> bool:
        if isinstance(body, Abort | AbortAck) and len(lost) < 2:
            lost.append(body)
            return True
        return False

    world.drop = drop
    world.write_delay = lambda write: 2.5 if write.key else 0.001
    ask(prefill, decode, [9] * 40, room=1)
    world.run(0.2)
    decode.pipeline.abort(LocalAbort(rid="r1", reason="client gone"), world.now)
    world.run(0.1)
    assert decode.pools.pages.count().quarantined == 10
    world.run(6.0)
    assert len(lost) == 2
    assert decode.initial()
    assert prefill.initial()


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.06, 0.1, 0.3])
def test_prefill_killed_and_restarted(moment: float) -> None:
    world, prefill, decode = pair(11)
    answers = [ask(prefill, decode, [room] * 50, room=room)[1] for room in range(1, 9)]
    world.run(moment)
    world.kill("p")
    world.run(9.0)
    assert all(a.ended for a in answers)
    again = world.add("prefill", "p")
    world.run(4.0)
    _, answer = ask(again, decode, [1, 2, 3], room=77)
    world.run(3.0)
    assert answer.tokens == oracle([1, 2, 3], 8)
    assert decode.initial()


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.06, 0.1, 0.3])
def test_decode_killed_and_restarted(moment: float) -> None:
    world, prefill, decode = pair(12)
    firsts = [ask(prefill, decode, [room] * 50, room=room)[0] for room in range(1, 9)]
    world.run(moment)
    world.kill("d")
    world.run(9.0)
    again = world.add("decode", "d")
    _, answer = ask(prefill, again, [1, 2, 3], room=77)
    world.run(70.0)
    assert all(a.ended for a in firsts)
    assert answer.tokens == oracle([1, 2, 3], 8)
    assert prefill.initial()


def test_frozen_prefill_keeps_pages_quarantined_until_it_answers() -> None:
    world, prefill, decode = pair(13)
    world.write_delay = lambda write: 25.0 if write.key else 0.001
    _, answer = ask(prefill, decode, [4] * 50, room=1)
    world.run(0.5)
    prefill.frozen_until = world.now + 30.0
    world.run(10.0)
    assert answer.failed is not None
    assert answer.failed.kind == "peer_lost"
    assert decode.pools.pages.count().quarantined > 0
    world.run(30.0)
    assert decode.initial()
    assert prefill.initial()


@pytest.mark.parametrize("role", ["prefill", "decode", "aggregated"])
def test_e39_a_failed_pass_fails_its_requests_and_no_others(role: str) -> None:
    world, prefill, decode = pair()
    alone = world.add("aggregated", "a")
    broken = {"prefill": prefill, "decode": decode, "aggregated": alone}[role]
    if role == "aggregated":
        answer = alone.submit("r1", [9] * 20, room=0, prefill="", max_new=30)
    else:
        _, answer = ask(prefill, decode, [9] * 20, room=1, max_new=30)
    broken.engine.fail_next = "out of memory"
    world.run(5.0)
    assert answer.failed is not None
    assert answer.failed.kind == "engine_error"
    assert all(node.initial() for node in (prefill, decode, alone))
    _, answer = ask(prefill, decode, [9] * 20, room=2)
    world.run(2.0)
    assert answer.tokens == oracle([9] * 20, 8)


def test_aggregated_equals_oracle() -> None:
    world = World(5)
    node = world.add("aggregated", "a", sizes=Sizes(pages=40, running_max=4))
    dice = random.Random(1)
    asked = []
    for room in range(1, 20):
        prompt = [dice.randrange(1, 250) for _ in range(dice.randrange(1, 60))]
        answer = node.submit(f"r{room}", prompt, room=0, prefill="", max_new=20)
        asked.append((prompt, answer))
    world.run(30.0)
    for prompt, answer in asked:
        assert answer.tokens == oracle(prompt, 20)
    assert node.initial()
