"""What the sidecar concludes from the scheduler's answers and silences. Pure.

    never answered                    STARTING  (HUNG once it listens and stays silent for too long)
    answered lately                   SERVING | DRAINING | HUNG (a forward pass over its limit)
    silent, its socket is listening   HUNG
    silent, nothing listens           GONE

Ready means SERVING, and not refusing requests because too much memory is in quarantine. Live is
false only when a restart would help: a loop silent for longer than ``loop_hang_s`` although its
process is there, or a forward pass over ``compute_hang_s``. A process that is gone is restarted by
its kubelet anyway, and while a new one loads its model a failing liveness would kill it again.
Losing peers changes neither.
"""

from dataclasses import dataclass
from enum import StrEnum

from pdcluster_worker.wire.local import Status

STALE_S = 2.0  # an answer older than this says nothing of now


class State(StrEnum):
    """As in control.proto."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    HUNG = "hung"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The conclusion at one moment."""

    state: State
    reason: str  # "" while ready
    live: bool
    status: Status | None  # the last one known
    age_s: float  # of ``status``; -1 without one

    @property
    def ready(self) -> bool:
        return self.state is State.SERVING and not self.reason


class Observer:
    """Remembers what was seen. Times are clock seconds."""

    def __init__(self, *, loop_hang_s: float, compute_hang_s: float) -> None:
        self._loop_hang_s = loop_hang_s
        self._compute_hang_s = compute_hang_s
        self._status: Status | None = None
        self._answered_at = 0.0
        self._listening_since: float | None = None

    def answered(self, status: Status, now: float) -> None:
        """The scheduler answered."""
        self._status, self._answered_at = status, now
        self._listening_since = now

    def silent(self, *, listening: bool, now: float) -> None:
        """It did not answer in time; ``listening`` says whether its process is there."""
        if not listening:
            self._listening_since = None
        elif self._listening_since is None:
            self._listening_since = now

    def age_s(self, now: float) -> float:
        """Of the last answer; -1 when there was none."""
        return -1.0 if self._status is None else now - self._answered_at

    def view(self, now: float) -> View:
        """What all that means."""
        state, reason, live = self._conclude(now)
        return View(
            state=state, reason=reason, live=live, status=self._status, age_s=self.age_s(now)
        )

    def _conclude(self, now: float) -> tuple[State, str, bool]:
        status, age = self._status, self.age_s(now)
        if status is not None and age <= STALE_S:
            return self._conclude_from(status)
        if self._listening_since is None:
            if status is None:
                return State.STARTING, "the scheduler does not listen yet", True
            return State.GONE, f"the scheduler ended or is being restarted, {age:.1f} s ago", True
        # Silence counts from the last answer, or from when this process began to listen.
        silence = now - self._listening_since
        if status is None and silence <= self._loop_hang_s:
            return State.STARTING, "the scheduler listens and has not answered yet", True
        live = silence <= self._loop_hang_s
        return State.HUNG, f"the scheduler loop has been silent for {silence:.1f} s", live

    def _conclude_from(self, status: Status) -> tuple[State, str, bool]:
        if status.computing_s > self._compute_hang_s:
            limit = self._compute_hang_s
            return State.HUNG, f"a forward pass runs for over {limit:g} s", False
        if status.draining:
            return State.DRAINING, "draining", True
        return State.SERVING, status.refusing, True
