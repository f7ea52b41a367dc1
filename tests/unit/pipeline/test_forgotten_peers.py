"""A prefill that forgets a silent decode tells it, for it may only have been stopped."""

import pytest

from pdcluster_worker.pipeline.effects import Effect, Send
from pdcluster_worker.pipeline.peers import PeerTable
from pdcluster_worker.wire.peer import Hello, Rejoin
from tests.unit.pipeline.rig import PEER, intro, peer_table

LONG_S = 100  # beyond `forget_s`


def forgotten(*, needed: bool) -> tuple[PeerTable, list[Effect]]:
    """A peer that was met at 1 s and silent for a long time after."""
    out: list[Effect] = []
    table = peer_table(out, role="prefill")
    table.met(PEER, Hello(intro=intro(PEER)), now=1.0)
    table.warm_written(PEER)
    table.warm_seen(PEER)
    for now in range(2, LONG_S):  # in steps: a gap would be taken for a sleep of our own
        table.tick(float(now), rooms=lambda _: (), needed=lambda _: needed, draining=False)
    return table, out


@pytest.mark.parametrize("needed", [False, True])
def test_rejoin_is_said_on_forgetting_and_only_then(needed: bool) -> None:
    table, out = forgotten(needed=needed)
    said = [e for e in out if isinstance(e, Send) and isinstance(e.body, Rejoin)]
    assert (table.get(PEER) is None) is not needed
    assert [send.receiver for send in said] == ([] if needed else [PEER])
