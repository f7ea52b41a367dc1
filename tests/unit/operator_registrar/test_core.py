"""What the registrar asks of the router."""

import pytest

from pdcluster_api.names import Role
from pdcluster_api.schema import SchemaError
from pdcluster_operator.registrar.core import (
    ADD_PAUSE_S,
    SETTLE_S,
    Add,
    Call,
    Listed,
    Prove,
    Registration,
    Remove,
)
from pdcluster_operator.registrar.desired import Desired, Worker, read_desired

P, D = "http://p:1", "http://d:1"


def worker(url: str, role: Role, pairing: str = "f") -> Worker:
    return Worker(url=url, role=role, pairing=pairing)


def listed(
    url: str, role: str, *, pairing: str = "f", healthy: bool = True, draining: bool = False
) -> Listed:
    return Listed(f"id-{url}", url, role, pairing, None, healthy, draining)


BOTH = Desired(workers=(worker(P, Role.PREFILL), worker(D, Role.DECODE)))
UP = (listed(P, "prefill"), listed(D, "decode"))


def step(registration: Registration, seen: tuple[Listed, ...] | None, now: float) -> list[Call]:
    registration.observe(seen, now)
    return list(registration.calls(now))


def proven() -> Registration:
    registration = Registration(BOTH)
    (proof,) = step(registration, UP, 0)
    assert isinstance(proof, Prove)
    registration.on_proof(proof, error=None, now=0)
    assert registration.converged
    return registration


def test_missing_workers_are_added_and_asked_for_again_after_growing_pauses() -> None:
    registration = Registration(BOTH)
    assert [type(call) for call in step(registration, (), 0)] == [Add, Add]
    assert step(registration, (), 0.5 * ADD_PAUSE_S) == []
    assert len(step(registration, (), ADD_PAUSE_S)) == 2
    assert step(registration, (), 2.5 * ADD_PAUSE_S) == []


def test_after_a_router_restart_everything_is_added_at_once() -> None:
    registration = proven()
    assert step(registration, None, 1) == []
    assert not registration.ready
    assert len(step(registration, (), 1.1)) == 2


def test_an_unnoticed_restart_heals_too() -> None:
    registration = proven()
    assert len(step(registration, (), 1)) == 2
    assert not registration.ready


def test_it_is_ready_only_after_an_answered_request() -> None:
    registration = Registration(BOTH)
    (proof,) = step(registration, UP, 0)
    assert isinstance(proof, Prove)
    assert registration.reason().startswith("no request was answered yet")
    assert step(registration, UP, 0.1) == []  # one at a time
    registration.on_proof(proof, error="503", now=0.2)
    assert "503" in registration.reason()
    assert step(registration, UP, 0.3) == []
    (again,) = step(registration, UP, 1)
    assert isinstance(again, Prove)
    registration.on_proof(again, error=None, now=1)
    assert registration.ready
    assert registration.reason() == ""


def test_a_reason_says_what_is_awaited() -> None:
    nobody = Registration(Desired())
    assert step(nobody, (), 0) == []
    assert nobody.reason() == "no worker is ready yet"
    half = Registration(Desired(workers=BOTH.workers[1:]))
    assert step(half, UP[1:], 0) == []
    assert half.reason() == "no prefill worker is ready yet"
    whole = Registration(BOTH)
    step(whole, UP, 0)
    assert whole.reason() == "no request was answered yet"


def test_a_proof_that_a_restart_overtook_proves_nothing() -> None:
    registration = Registration(BOTH)
    (proof,) = step(registration, UP, 0)
    assert isinstance(proof, Prove)
    step(registration, None, 1)
    registration.on_proof(proof, error=None, now=2)
    assert not registration.ready


def test_one_dead_worker_of_two_leaves_it_ready_but_not_converged() -> None:
    more = Desired(workers=(*BOTH.workers, worker("http://p:2", Role.PREFILL)))
    registration = proven()
    registration.desired = more
    seen = (*UP, listed("http://p:2", "prefill", healthy=False))
    assert step(registration, seen, 1) == []
    assert registration.ready
    assert not registration.converged
    assert registration.reason() == "not healthy in the router: http://p:2"
    assert dict(registration.routable()) == {"prefill": 1, "decode": 1}


def test_a_router_that_restarts_while_a_worker_is_dead_serves_after_a_while() -> None:
    registration = Registration(
        Desired(workers=(*BOTH.workers, worker("http://p:2", Role.PREFILL)))
    )
    assert all(isinstance(call, Add) for call in step(registration, UP, 0))
    assert any(isinstance(call, Prove) for call in step(registration, UP, SETTLE_S))


def test_no_pair_across_fingerprints() -> None:
    mixed = Desired(workers=(worker(P, Role.PREFILL, "a"), worker(D, Role.DECODE, "b")))
    registration = Registration(mixed)
    seen = (listed(P, "prefill", pairing="a"), listed(D, "decode", pairing="b"))
    assert step(registration, seen, 0) == []
    assert not registration.paired
    assert "different KV layouts" in registration.reason()


def test_strangers_and_changed_workers_are_removed_once() -> None:
    registration = proven()
    stranger = listed("http://x:1", "decode")
    assert step(registration, (*UP, stranger), 1) == [Remove(stranger.id, stranger.url)]
    leaving = listed("http://x:1", "decode", draining=True)
    assert step(registration, (*UP, leaving), 2) == []
    changed = listed(D, "decode", pairing="other")
    assert step(registration, (UP[0], changed), 3) == [Remove(changed.id, D)]
    assert step(registration, (UP[0], listed(D, "decode", draining=True)), 4) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"workers": [{"url": "ftp://x", "role": "prefill", "pairing": "f"}]},
        {"workers": [{"url": P, "role": "x", "pairing": "f"}]},
        {"workers": [{"url": P, "role": "prefill", "pairing": "f"}] * 2},
        {"worker": []},
        [],
    ],
)
def test_a_bad_list_is_refused(bad: object) -> None:
    with pytest.raises(SchemaError):
        read_desired(bad)
