"""What the sidecar concludes, moment by moment."""

import msgspec
import pytest

from pdcluster_worker.rendezvous.view import STALE_S, Observer, State
from pdcluster_worker.wire.local import PoolUse, Status

STATUS = Status(
    instance="i-1",
    role="prefill",
    cluster="local",
    fingerprint="f",
    draining=False,
    uptime_s=1.0,
    ticks=1,
    tick_max_ms=1.0,
    computing_s=0.0,
    stages={},
    pages=PoolUse(total=4, free=4, held=0, quarantined=0),
    rows=PoolUse(total=4, free=4, held=0, quarantined=0),
    peers={},
    requests_done=0,
    requests_failed=0,
    prompt_tokens=0,
    output_tokens=0,
    handoff_bytes=0,
    handoff_seconds=0.0,
    handoffs=0,
)


@pytest.fixture
def observer() -> Observer:
    return Observer(loop_hang_s=10.0, compute_hang_s=300.0)


def test_starts_live_and_not_ready(observer: Observer) -> None:
    view = observer.view(5.0)
    assert (view.state, view.live, view.ready, view.age_s) == (State.STARTING, True, False, -1.0)


def test_refusing_is_serving_and_not_ready(observer: Observer) -> None:
    observer.answered(msgspec.structs.replace(STATUS, refusing="too much quarantine"), 5.0)
    view = observer.view(5.0)
    assert (view.state, view.live, view.ready) == (State.SERVING, True, False)
    assert view.reason == "too much quarantine"


def test_serving(observer: Observer) -> None:
    observer.answered(STATUS, 1.0)
    view = observer.view(1.5)
    assert (view.state, view.live, view.ready, view.reason) == (State.SERVING, True, True, "")
    assert view.age_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "state", "live"),
    [
        ({"draining": True}, State.DRAINING, True),
        ({"computing_s": 299.0}, State.SERVING, True),
        ({"computing_s": 301.0}, State.HUNG, False),
    ],
)
def test_from_the_answer(
    observer: Observer, change: dict[str, object], state: State, live: bool
) -> None:
    observer.answered(msgspec.structs.replace(STATUS, **change), 1.0)
    view = observer.view(1.0)
    assert (view.state, view.live) == (state, live)
    assert view.ready is (state is State.SERVING)


def test_a_hung_loop_is_not_ready_at_once_and_not_live_after_its_limit(observer: Observer) -> None:
    observer.answered(STATUS, 100.0)
    observer.silent(listening=True, now=103.0)
    view = observer.view(100.0 + STALE_S + 0.1)
    assert (view.state, view.live, view.status) == (State.HUNG, True, STATUS)
    assert observer.view(110.1).live is False
    observer.answered(STATUS, 111.0)
    assert observer.view(111.0).ready


def test_gone_stays_live_and_keeps_what_was_known(observer: Observer) -> None:
    observer.answered(STATUS, 100.0)
    observer.silent(listening=False, now=103.0)
    view = observer.view(200.0)
    assert (view.state, view.live, view.status) == (State.GONE, True, STATUS)
    assert "100.0 s" in view.reason


def test_a_restarted_worker_has_the_whole_limit_again(observer: Observer) -> None:
    observer.answered(STATUS, 100.0)
    observer.silent(listening=False, now=103.0)
    observer.silent(listening=True, now=200.0)
    assert observer.view(209.0).live
    assert not observer.view(211.0).live


def test_listening_but_never_answering(observer: Observer) -> None:
    observer.silent(listening=True, now=1.0)
    assert observer.view(9.0).state is State.STARTING
    assert observer.view(12.0).state is State.HUNG
