"""One container through its runs.

1. waiting      its turn has not come, or its back-off is not over
2. starting     the start was asked for, nothing came back yet
3. running      a process is there; probes ask
4. stopping     preStop hook, then TERM, then at the deadline KILL
5. terminated   ended; goes back to 1 when the pod restarts it
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from signal import Signals

from pdcluster_operator.local.kubelet.actions import Action, Ask, PreStop, Signal, Start
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.pod import ContainerSpec, ProbeKind
from pdcluster_operator.local.kubelet.probe_state import ProbeState

_NEVER = float("inf")


class ContainerPhase(StrEnum):
    """See the module's list."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    TERMINATED = "terminated"


class Hook(StrEnum):
    """Where the preStop hook of a stop is."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one run ended."""

    exit_code: int  # as a container runtime counts: 128 + signal when killed by one
    reason: str
    message: str
    started_at: float | None
    finished_at: float


@dataclass(slots=True)
class Stop:
    """A stop in progress."""

    deadline: float
    hook: Hook
    term_sent: bool = False
    kill_sent: bool = False


@dataclass(slots=True)
class Container:
    """State of one container; the pod's machine decides when it may start and whether it stops."""

    spec: ContainerSpec
    options: KubeletOptions
    phase: ContainerPhase = ContainerPhase.WAITING
    run: int = 0
    restarts: int = 0
    not_before: float = 0.0
    backoff_steps: int = 0
    started_at: float | None = None
    ended: Ended | None = None
    probes: dict[ProbeKind, ProbeState] = field(default_factory=dict)
    stop: Stop | None = None
    stop_reason: str = ""
    once_started: bool = False

    @property
    def active(self) -> bool:
        """A process may exist."""
        return self.phase in (
            ContainerPhase.STARTING,
            ContainerPhase.RUNNING,
            ContainerPhase.STOPPING,
        )

    @property
    def started(self) -> bool:
        """Running, and its startup probe (if any) has succeeded."""
        probe = self.probes.get(ProbeKind.STARTUP)
        return self.phase is ContainerPhase.RUNNING and (probe is None or probe.verdict is True)

    @property
    def ready(self) -> bool:
        """Started, and its readiness probe (if any) says so."""
        probe = self.probes.get(ProbeKind.READINESS)
        return self.started and (probe is None or probe.verdict is True)

    def start(self) -> Start:
        """Begin the next run."""
        self.phase = ContainerPhase.STARTING
        self.restarts += self.run > 0
        self.run += 1
        self.stop, self.stop_reason, self.started_at, self.probes = None, "", None, {}
        return Start(self.spec.name, self.run)

    def on_started(self, now: float) -> None:
        """Note that a process is there."""
        self.started_at = now
        if self.phase is ContainerPhase.STARTING:  # else: it was told to stop meanwhile
            self.phase = ContainerPhase.RUNNING
        self.probes = {
            kind: ProbeState(probe, self.options.eager_period_s, now + probe.initial_delay_s)
            for kind, probe in self.spec.probes.items()
        }
        self.once_started |= self.started

    def on_exit(self, exit_code: int, *, reason: str, message: str, now: float) -> None:
        """Note that the run is over; the next one may start after the back-off."""
        reason = self.stop_reason or reason
        self.ended = Ended(exit_code, reason, message, self.started_at, now)
        ran_s = 0.0 if self.started_at is None else now - self.started_at
        if ran_s >= self.options.backoff_reset_s:
            self.backoff_steps = 0
        delay = self.options.backoff_base_s * 2.0**self.backoff_steps
        self.not_before = now + min(delay, self.options.backoff_max_s)
        if delay < self.options.backoff_max_s:
            self.backoff_steps += 1
        self.phase, self.stop, self.started_at = ContainerPhase.TERMINATED, None, None

    def on_probe(self, kind: ProbeKind, *, ok: bool, message: str, now: float) -> None:
        """Take a probe's answer."""
        if kind in self.probes:
            self.probes[kind].answer(ok=ok, message=message, now=now)
            self.once_started |= self.started

    def begin_stop(self, now: float, grace_s: float, *, reason: str = "") -> None:
        """Start the way out; an earlier deadline stays."""
        deadline = now + grace_s
        if self.stop is not None:
            self.stop.deadline = min(self.stop.deadline, deadline)
        elif self.active:
            self.stop = Stop(deadline, Hook.PENDING if self.spec.pre_stop else Hook.DONE)
            self.stop_reason = reason
            self.phase = ContainerPhase.STOPPING

    def tick(self, now: float, grace_s: float) -> Iterator[Action]:
        """Yield what is due: probes while running, the next step while stopping."""
        if self.stop is not None:
            yield from self._tick_stop(self.stop, now)
        elif self.phase is ContainerPhase.RUNNING:
            for kind in (ProbeKind.STARTUP, ProbeKind.LIVENESS):
                probe = self.probes.get(kind)
                if probe is not None and probe.verdict is False:
                    why = f"{kind.value} probe failed: {probe.message}"
                    self.begin_stop(now, grace_s, reason=why)
                    yield from self.tick(now, grace_s)
                    return
            for kind, probe in self.probes.items():
                if self._asks(kind) and probe.take_due(now):
                    yield Ask(self.spec.name, self.run, kind)

    def next_due(self) -> float:
        """Return the next time at which `tick` may have something to do."""
        if self.stop is not None:
            return _NEVER if self.stop.kill_sent else self.stop.deadline
        if self.phase is not ContainerPhase.RUNNING:
            return _NEVER
        due = [p.due_at for kind, p in self.probes.items() if self._asks(kind) and not p.asking]
        return min(due, default=_NEVER)

    def _asks(self, kind: ProbeKind) -> bool:
        """Startup gates the others; once it has succeeded it is never asked again."""
        return (kind is ProbeKind.STARTUP) is not self.started

    def _tick_stop(self, stop: Stop, now: float) -> Iterator[Action]:
        if now >= stop.deadline:
            if not stop.kill_sent:
                stop.kill_sent = True
                yield Signal(self.spec.name, self.run, Signals.SIGKILL)
        elif self.started_at is None:
            return  # no process yet; the rest follows when there is one
        elif stop.hook is Hook.PENDING:
            stop.hook = Hook.RUNNING
            yield PreStop(self.spec.name, self.run)
        elif stop.hook is Hook.DONE and not stop.term_sent:
            stop.term_sent = True
            yield Signal(self.spec.name, self.run, Signals.SIGTERM)

    def on_pre_stop_done(self) -> None:
        """Let the TERM follow."""
        if self.stop is not None:
            self.stop.hook = Hook.DONE
