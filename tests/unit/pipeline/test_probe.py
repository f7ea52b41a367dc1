"""The health probe: answered by any pass, or by one of its own, and nothing stays behind (E32)."""

import pytest

from pdcluster_worker.core.ports import BatchResult
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.kv.rows import RowAllocator
from pdcluster_worker.pipeline.effects import Effect, Emit, Launch
from pdcluster_worker.pipeline.probe import PROBES_MAX, Prober
from pdcluster_worker.wire.local import Failed, Tokens
from tests.unit.pipeline.rig import DecodeRig

DONE = BatchResult(results=(), seconds=0.1)
BROKEN = BatchResult(results=(), seconds=0.1, error="boom")


@pytest.fixture
def pools() -> Pools:
    return Pools(pages=PageAllocator(2), rows=RowAllocator(2))


@pytest.fixture
def outbox() -> list[Effect]:
    return []


@pytest.fixture
def prober(pools: Pools, outbox: list[Effect]) -> Prober:
    return Prober(pools, outbox)


def answered(outbox: list[Effect]) -> list[Tokens | Failed]:
    return [effect.message for effect in outbox if isinstance(effect, Emit)]


def test_e32_an_idle_engine_computes_one_token(
    prober: Prober, pools: Pools, outbox: list[Effect]
) -> None:
    prober.tick(engine_idle=True)
    assert outbox == []
    prober.ask("a")
    prober.tick(engine_idle=True)
    (launch,) = outbox
    assert isinstance(launch, Launch)
    assert launch.steps[0].sample is not None
    assert pools.pages.count().held == 1
    outbox.clear()
    prober.ask("b")
    prober.tick(engine_idle=False)
    prober.done(DONE)
    assert [message.rid for message in answered(outbox)] == ["a", "b"]
    assert pools.pages.count().free == 2


def test_e32_a_busy_engine_is_proof_enough(
    prober: Prober, pools: Pools, outbox: list[Effect]
) -> None:
    """Trigger: health is asked for while the engine is busy, memory is full or a peer is dead.
    Others: the probe queued behind requests, failed, and left entries in queues.
    Here: any pass that ends proves the engine; an idle one computes a single token without a peer.
    Bound: one pass; 64 probes wait at most.
    """
    prober.ask("a")
    prober.tick(engine_idle=False)
    outbox.append(Launch(()))
    prober.tick(engine_idle=True)
    assert len(outbox) == 1
    prober.done(BROKEN)  # a batch of others
    assert answered(outbox) == []
    prober.done(DONE)
    assert len(answered(outbox)) == 1
    assert pools.pages.count().free == 2


def test_e32_a_broken_engine_is_told(prober: Prober, pools: Pools, outbox: list[Effect]) -> None:
    prober.ask("a")
    prober.tick(engine_idle=True)
    prober.done(BROKEN)
    (failed,) = answered(outbox)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message) == ("engine_error", "boom")
    assert pools.pages.count().free == 2


def test_e32_a_full_pool_waits_for_peers_and_is_healthy(
    prober: Prober, pools: Pools, outbox: list[Effect]
) -> None:
    assert pools.lease(pages=2, row=False) is not None
    prober.ask("a")
    prober.tick(engine_idle=True)
    (message,) = answered(outbox)
    assert isinstance(message, Tokens)
    assert message.finish == "length"


def test_e32_nobody_waits_any_more(prober: Prober, outbox: list[Effect]) -> None:
    prober.ask("a")
    prober.forget("a")
    prober.forget("unknown")
    prober.tick(engine_idle=True)
    assert outbox == []


def test_e32_probes_are_bounded(prober: Prober, outbox: list[Effect]) -> None:
    for number in range(PROBES_MAX + 1):
        prober.ask(str(number))
    (failed,) = answered(outbox)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.rid) == ("overloaded", str(PROBES_MAX))


def test_the_page_of_a_running_probe_is_no_leak() -> None:
    rig = DecodeRig()
    rig.pipeline.prober.ask("h")
    rig.pipeline.prober.tick(engine_idle=True)
    assert rig.pipeline.pools.pages.count().held == 1
    rig.pipeline.check_idle()
    rig.pipeline.prober.done(DONE)
    assert rig.pipeline.pools.pages.count().held == 0
