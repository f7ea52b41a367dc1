"""When to ask a probe again, and what its answers so far amount to."""

from dataclasses import dataclass

from pdcluster_operator.local.kubelet.pod import ProbeSpec


@dataclass(slots=True)
class ProbeState:
    """One probe of one run of a container. Owned and driven by the container's machine."""

    spec: ProbeSpec
    eager_period_s: float
    due_at: float
    asking: bool = False
    verdict: bool | None = None  # None until a threshold is reached
    successes: int = 0
    failures: float = 0.0  # in probe periods: an eager ask counts as the part that it is
    message: str = ""

    def take_due(self, now: float) -> bool:
        """Say whether to ask now, and if so remember that the question is out."""
        if self.asking or now < self.due_at:
            return False
        self.asking = True
        return True

    def answer(self, *, ok: bool, message: str, now: float) -> None:
        """Take the answer to the question that is out."""
        period = self._period()
        self.asking = False
        self.message = message
        if ok:
            self.successes += 1
            self.failures = 0.0
            if self.successes >= self.spec.success_threshold:
                self.verdict = True
        else:
            self.successes = 0
            self.failures += period / self.spec.period_s
            if self.failures >= self.spec.failure_threshold - 1e-9:
                self.verdict = False
        self.due_at = now + self._period()

    def _period(self) -> float:
        eager = self.verdict is not True
        return min(self.spec.period_s, self.eager_period_s) if eager else self.spec.period_s
