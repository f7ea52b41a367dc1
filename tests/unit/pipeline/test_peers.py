"""Peers: the handshake of both roles, silence, and what proves a process dead."""

import pytest

from pdcluster_worker.core.errors import PeerIncompatible
from pdcluster_worker.pipeline.effects import Effect, Join, Part, Send, Write
from pdcluster_worker.pipeline.peers import EARLY_MAX, Change, PeerTable
from pdcluster_worker.wire.notice import NoticeKind
from pdcluster_worker.wire.peer import Alive, Hello, Rejoin, Unwelcome, Welcome
from tests.unit.pipeline.rig import LIMITS, OTHER, PEER, US, PrefillRig, intro, peer_table


@pytest.fixture
def out() -> list[Effect]:
    return []


@pytest.fixture
def table(out: list[Effect]) -> PeerTable:
    return peer_table(out)


def meet(table: PeerTable, instance: str = PEER, *, pod_uid: str = "", now: float = 1.0) -> None:
    """A decode says Hello; both warm-ups are written."""
    table.met(instance, Hello(intro=intro(instance, pod_uid=pod_uid)), now=now)
    table.warm_written(instance)
    table.warm_seen(instance)


def tick(table: PeerTable, now: float, *, needed: bool = False) -> None:
    """With nothing to say but Alive."""
    table.tick(now, rooms=lambda _: (), needed=lambda _: needed, draining=False)


def test_hello_is_joined_answered_and_warmed_in_this_order(
    table: PeerTable, out: list[Effect]
) -> None:
    table.met(PEER, Hello(intro=intro(PEER)), now=1.0)
    join, send, write = out
    assert isinstance(join, Join)
    assert isinstance(send, Send)
    assert isinstance(send.body, Welcome)
    assert isinstance(write, Write)
    assert write.notice.kind is NoticeKind.WARM
    assert (write.key, write.region, write.source.tolist()) == (0, "meta", [0])
    assert (write.notice.writer, write.notice.reader) == (US, PEER)


def test_welcome_is_joined_and_warmed_and_not_answered(table: PeerTable, out: list[Effect]) -> None:
    table.met(PEER, Welcome(intro=intro(PEER)), now=1.0)
    assert [type(effect) for effect in out] == [Join, Write]


@pytest.mark.parametrize("steps", [("wrote", "seen"), ("seen", "wrote")])
def test_a_peer_is_ready_only_after_both_warm_ups(table: PeerTable, steps: list[str]) -> None:
    table.met(PEER, Welcome(intro=intro(PEER)), now=1.0)
    for step in steps:
        assert table.ready(PEER) is None
        assert table.warming()
        (table.warm_written if step == "wrote" else table.warm_seen)(PEER)
    assert table.ready(PEER) is not None
    assert table.take_changes() == [(Change.READY, PEER)]
    assert table.take_changes() == []


def test_a_warm_up_may_come_before_the_introduction(table: PeerTable) -> None:
    table.warm_seen(PEER)
    table.met(PEER, Welcome(intro=intro(PEER)), now=1.0)
    table.warm_written(PEER)
    assert table.ready(PEER) is not None


def test_early_warm_ups_are_bounded(table: PeerTable) -> None:
    table.warm_seen(PEER)
    for number in range(EARLY_MAX):
        table.warm_seen(f"{number:032x}")
    table.met(PEER, Welcome(intro=intro(PEER)), now=1.0)
    table.warm_written(PEER)
    assert table.ready(PEER) is None, "the oldest had to go: Hello is said again"


@pytest.mark.parametrize("field", ["fingerprint", "schema", "transport"])
def test_e08_e09_a_mismatch_names_both_values_and_the_worker_lives_on(field: str) -> None:
    """Trigger: two workers differ in KV type, page size or any other part of the layout.
    Others: read the bytes in the wrong layout, without a word.
    Here: fingerprints are compared at the lookup and in both greetings; the error names both.
    Bound: one round trip; no page moves before.
    """
    rig = PrefillRig()
    rig.frame(Hello(intro=intro(OTHER, **{field: "theirs"})), sender=OTHER)
    (unwelcome,) = rig.said(Unwelcome)
    assert unwelcome.kind == PeerIncompatible.kind
    assert "'theirs'" in unwelcome.message
    assert repr(field[0]) in unwelcome.message
    assert OTHER not in rig.pipeline.peer_states()
    assert rig.pipeline.handshake_failures[PeerIncompatible.kind] == 1
    assert rig.pipeline.peer_states() == {PEER: "ready"}


def test_silence_is_a_loss_and_not_a_proof(table: PeerTable, out: list[Effect]) -> None:
    meet(table)
    table.take_changes()
    out.clear()
    now = 1.0
    while now < 1.0 + LIMITS.heartbeat_timeout_s:
        now += 0.5
        assert table.take_changes() == []
        tick(table, now, needed=True)
    tick(table, now + 1.0, needed=True)
    assert table.take_changes() == [(Change.LOST, PEER)]
    assert not any(isinstance(effect, Part) for effect in out)
    table.heard(PEER, now + 2.0)
    assert table.take_changes() == [(Change.READY, PEER)], "it was stopped, not dead"


def test_heartbeats_go_to_all_peers_once_an_interval(table: PeerTable, out: list[Effect]) -> None:
    meet(table)
    meet(table, OTHER)
    out.clear()
    for step in range(11):
        tick(table, 2.0 + step * 0.1)
    beats = [e.receiver for e in out if isinstance(e, Send) and isinstance(e.body, Alive)]
    assert sorted(beats) == sorted([PEER, OTHER] * 2)


def test_a_gap_of_our_own_is_not_the_silence_of_others(table: PeerTable) -> None:
    meet(table)
    table.take_changes()
    tick(table, 2.0)
    tick(table, 100.0)  # we were stopped; what they sent is still in our sockets
    assert table.take_changes() == []
    now = 100.0
    while now < 108.0:
        now += 0.5
        tick(table, now, needed=True)
    assert (Change.LOST, PEER) in table.take_changes(), "then silence counts again"


def test_e53_a_new_instance_in_the_same_pod_proves_the_former_dead(table: PeerTable) -> None:
    meet(table, pod_uid="pod")
    table.take_changes()
    meet(table, OTHER, pod_uid="pod")
    assert (Change.GONE, PEER) in table.take_changes()
    assert table.get(PEER) is None


@pytest.mark.parametrize(("former", "new"), [("", ""), ("pod", "other"), ("pod", "")])
def test_another_or_no_pod_uid_proves_nothing(table: PeerTable, former: str, new: str) -> None:
    meet(table, pod_uid=former)
    table.take_changes()
    meet(table, OTHER, pod_uid=new)
    assert (Change.GONE, PEER) not in table.take_changes()
    assert table.ready(PEER) is not None


@pytest.mark.parametrize("needed", [True, False])
def test_a_lost_peer_is_forgotten_only_when_nothing_refers_to_it(
    table: PeerTable, needed: bool
) -> None:
    meet(table)
    now = 1.0
    while now < LIMITS.orphan_ttl_s + 5.0:
        now += 0.5
        tick(table, now, needed=needed)
    assert (table.get(PEER) is not None) is needed


def test_e53_the_transport_parts_from_a_broken_peer_and_only_a_handshake_mends_it(
    table: PeerTable, out: list[Effect]
) -> None:
    meet(table)
    table.take_changes()
    table.broken(PEER)
    assert table.take_changes() == [(Change.LOST, PEER)]
    assert any(isinstance(effect, Part) for effect in out)
    table.heard(PEER, 2.0)
    assert table.ready(PEER) is None
    meet(table, now=3.0)
    assert table.ready(PEER) is not None


def test_warm_ups_from_before_a_break_prove_nothing(table: PeerTable) -> None:
    """They were posted on the old connection and end after it; the transport knows nobody now."""
    table.met(PEER, Hello(intro=intro(PEER)), now=1.0)
    table.broken(PEER)
    table.warm_written(PEER)
    table.warm_seen(PEER)
    table.heard(PEER, 1.1)
    assert table.ready(PEER) is None
    meet(table, now=1.2)
    assert table.ready(PEER) is not None


@pytest.mark.parametrize("cut", ["notice lost", "connection broken"])
def test_a_prefill_asks_for_the_handshake_that_did_not_complete(
    out: list[Effect], cut: str
) -> None:
    table = peer_table(out, role="prefill")
    table.met(PEER, Hello(intro=intro(PEER)), now=1.0)
    table.warm_written(PEER)
    if cut == "connection broken":
        table.warm_seen(PEER)
        table.broken(PEER)
    patience = 1.0 + LIMITS.heartbeat_timeout_s
    table.heard(PEER, patience)
    for now in (1.1, patience + 0.1, patience + 0.1 + LIMITS.heartbeat_interval_s):
        tick(table, now)
    asked = [e for e in out if isinstance(e, Send) and isinstance(e.body, Rejoin)]
    assert len(asked) == 1, "once, and not before it is overdue"


def test_a_silent_or_whole_peer_is_not_asked_to_join_again(out: list[Effect]) -> None:
    table = peer_table(out, role="prefill")
    meet(table)
    meet(table, OTHER)
    table.broken(OTHER)  # and never heard again
    for second in range(2, 30):
        table.heard(PEER, float(second))
        tick(table, float(second), needed=True)
    late = [
        e for e in out if isinstance(e, Send) and isinstance(e.body, Rejoin) and e.receiver == PEER
    ]
    assert late == []


def test_a_repeated_hello_of_a_ready_peer_ends_ready_again(table: PeerTable) -> None:
    meet(table)
    table.met(PEER, Hello(intro=intro(PEER)), now=2.0)
    table.warm_written(PEER)
    assert table.ready(PEER) is not None


def test_strangers_are_told_nothing(table: PeerTable, out: list[Effect]) -> None:
    assert not table.say(PEER, Alive())
    table.heard(PEER, 1.0)
    table.gone(PEER)
    table.broken(PEER)
    table.warm_written(PEER)
    assert out == []
    assert table.take_changes() == []
