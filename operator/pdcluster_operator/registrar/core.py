"""What to tell the router, and whether it routes. Pure.

1. absent      desired, not listed            -> Add (again after a pause that grows)
2. adding      accepted, not listed yet       the router probes the worker in the background
3. listed      healthy or not                 the router's own health checks decide
4. unwanted    listed, not desired as it is   -> Remove
5. draining    removal accepted               the router waits for its requests, about 5 s at
                                              least, and refuses to add the same url meanwhile
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pdcluster_api.names import Role
from pdcluster_operator.registrar.desired import Desired, Worker

ADD_PAUSE_S: Final = 1.0
ADD_PAUSE_MAX_S: Final = 15.0
SETTLE_S: Final = 10.0  # a pair is there but not every worker: then what is there is proven
PROVE_PAUSE_S: Final = 0.5
PROVE_PAUSE_MAX_S: Final = 5.0
CALLS_MAX: Final = 16  # of one pass; the rest follows in the next


@dataclass(frozen=True, slots=True)
class Listed:
    """A worker as the router lists it."""

    id: str
    url: str
    role: str
    pairing: str
    bootstrap_port: int | None
    healthy: bool
    draining: bool


@dataclass(frozen=True, slots=True)
class Add:
    """Register this worker."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the worker of this id out."""

    id: str
    url: str


@dataclass(frozen=True, slots=True)
class Prove:
    """Send one small request through the router; it stands for these urls."""

    urls: frozenset[str]
    epoch: int  # of the routing that it is to prove


Call = Add | Remove | Prove


@dataclass(slots=True)
class Registration:
    """Everything remembered between passes. Lost with the process without harm."""

    desired: Desired
    listed: tuple[Listed, ...] | None = None  # None: the router did not answer
    proven: frozenset[str] | None = None  # the urls that a proving request stood for
    paired_since: float | None = None
    proving: bool = False
    epoch: int = 0  # counts the times that routing was lost: an older proof proves nothing
    prove_after: float = 0.0
    prove_pause_s: float = PROVE_PAUSE_S
    message: str = ""  # why the last proving request failed
    pauses: dict[str, tuple[float, float]] = field(default_factory=dict)  # url -> until, next

    def observe(self, listed: tuple[Listed, ...] | None, now: float) -> None:
        """Take the router's list, or None when it did not answer."""
        self.listed = listed
        if listed is None:
            # Probably a restart: what was added is lost, so pauses mean nothing any more.
            self.pauses.clear()
        else:
            for one in listed:
                self.pauses.pop(one.url, None)
        if not self.paired:
            self.proven, self.paired_since = None, None
            self.epoch += 1
        elif self.paired_since is None:
            self.paired_since = now

    def calls(self, now: float) -> tuple[Call, ...]:
        """Return what to ask of the router now; remembers that it was asked."""
        if self.listed is None:
            return ()
        known = {one.url: one for one in self.listed}
        wanted = {worker.url: worker for worker in self.desired.workers}
        calls: list[Call] = [
            Remove(one.id, one.url)
            for one in self.listed
            if not one.draining and not _same(one, wanted.get(one.url))
        ]
        for url, worker in wanted.items():
            until, pause = self.pauses.get(url, (0.0, ADD_PAUSE_S))
            if url not in known and now >= until and len(calls) < CALLS_MAX:
                self.pauses[url] = (now + pause, min(2 * pause, ADD_PAUSE_MAX_S))
                calls.append(Add(worker))
        del calls[CALLS_MAX:]
        if proof := self._due_proof(now):
            self.proving = True
            calls.append(proof)
        return tuple(calls)

    def on_proof(self, proof: Prove, *, error: str | None, now: float) -> None:
        """Take the outcome of a proving request."""
        self.proving = False
        if error is None:
            self.prove_pause_s, self.message = PROVE_PAUSE_S, ""
            if proof.epoch == self.epoch:
                self.proven = proof.urls
        else:
            self.message = error
            self.prove_after = now + self.prove_pause_s
            self.prove_pause_s = min(2 * self.prove_pause_s, PROVE_PAUSE_MAX_S)

    @property
    def healthy(self) -> frozenset[str]:
        """The desired workers that the router lists as healthy, with what is desired of them."""
        wanted = {worker.url: worker for worker in self.desired.workers}
        return frozenset(
            one.url for one in self.listed or () if one.healthy and _same(one, wanted.get(one.url))
        )

    @property
    def complete(self) -> bool:
        """Every desired worker is listed and healthy."""
        return len(self.healthy) == len(self.desired.workers)

    @property
    def paired(self) -> bool:
        """At least one prefill and one decode of equal pairing can serve."""
        healthy = self.healthy
        able = [worker for worker in self.desired.workers if worker.url in healthy]
        return bool(_pairings(able, Role.PREFILL) & _pairings(able, Role.DECODE))

    @property
    def ready(self) -> bool:
        """The router routes: a request went through, and a pair is still there.

        The first time, all desired workers must be healthy (or the wait for them is over). Later a
        single dead worker leaves the router ready: taking it out of service would turn a loss of
        capacity into an outage.
        """
        return self.proven is not None and self.paired

    @property
    def converged(self) -> bool:
        """Ready, with every desired worker, proven for exactly this list."""
        urls = frozenset(worker.url for worker in self.desired.workers)
        return self.ready and self.complete and self.proven == urls

    def reason(self) -> str:
        """Say why it is not ready (or not converged)."""
        if self.listed is None:
            return "the router does not answer"
        if not self.desired.workers:
            return "no worker is ready yet"
        if not self.complete:
            missing = sorted({w.url for w in self.desired.workers} - self.healthy)
            return f"not healthy in the router: {', '.join(missing[:8])}"
        if not self.paired:
            return self._unpaired()
        why = f": {self.message}" if self.message else ""
        return "" if self.converged else f"no request was answered yet{why}"

    def _unpaired(self) -> str:
        """Say why healthy workers make no pair."""
        roles = {worker.role for worker in self.desired.workers}
        for role in (Role.PREFILL, Role.DECODE):
            if role not in roles:
                return f"no {role.value} worker is ready yet"
        return "prefill and decode workers have different KV layouts, none can be paired"

    def routable(self) -> Mapping[str, int]:
        """Count the workers per role that the router may send requests to."""
        healthy = self.healthy
        return {
            role.value: sum(w.role is role and w.url in healthy for w in self.desired.workers)
            for role in (Role.PREFILL, Role.DECODE)
        }

    def _due_proof(self, now: float) -> Prove | None:
        healthy = self.healthy
        settled = self.paired_since is not None and now - self.paired_since >= SETTLE_S
        if self.proving or not self.paired or self.proven == healthy or now < self.prove_after:
            return None
        due = self.complete or (settled and self.proven is None)
        return Prove(healthy, self.epoch) if due else None


def _same(listed: Listed, worker: Worker | None) -> bool:
    return worker is not None and (
        (listed.role, listed.pairing) == (worker.role.value, worker.pairing)
        and listed.bootstrap_port in (None, worker.bootstrap_port)
        and not listed.draining
    )


def _pairings(workers: Iterable[Worker], role: Role) -> set[str]:
    return {worker.pairing for worker in workers if worker.role is role}
