"""A prefill that forgets a silent decode tells it, for it may only have been stopped."""

import pytest

from pdcluster_worker.pipeline.effects import Effect, Send
from pdcluster_worker.pipeline.peers import PeerTable
from pdcluster_worker.wire.peer import Hello, Rejoin
from tests.unit.pipeline.rig import PEER, intro, peer_table

LONG_S = 100  # beyond `forget_s`


def silent(*, role: str, needed: bool) -> tuple[PeerTable, list[Effect]]:
    """A peer that was met at 1 s and silent for a long time after."""
    out: list[Effect] = []
    table = peer_table(out, role=role)
    table.met(PEER, Hello(intro=intro(PEER)), now=1.0)
    table.warm_written(PEER)
    table.warm_seen(PEER)
    for now in range(2, LONG_S):  # in steps: a gap would be taken for a sleep of our own
        table.tick(float(now), rooms=lambda _: (), needed=lambda _: needed, draining=False)
    return table, out


def told(out: list[Effect]) -> list[str]:
    """Who was asked for a new handshake."""
    return [e.receiver for e in out if isinstance(e, Send) and isinstance(e.body, Rejoin)]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_prefill_asks_the_peer_that_it_forgets_for_a_new_handshake(role: str) -> None:
    table, out = silent(role=role, needed=False)
    assert table.get(PEER) is None
    assert told(out) == ([PEER] if role == "prefill" else [])


def test_a_peer_that_is_needed_is_not_forgotten_and_not_asked() -> None:
    table, out = silent(role="prefill", needed=True)
    assert table.get(PEER) is not None
    assert told(out) == []
