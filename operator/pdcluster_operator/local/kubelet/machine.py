"""One pod: which of its containers start, restart and stop, in which order.

Start: init containers one after the other; an ordinary one must succeed, a sidecar must have
started, before the next begins; then all main containers at once.
End: main containers stop together (hook, TERM, at the grace period's end KILL); when the last is
gone the sidecars stop, in reverse order, so that they can report on the others to the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pdcluster_operator.local.kubelet.actions import Action
from pdcluster_operator.local.kubelet.container import Container, ContainerPhase
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.pod import PodSpec, ProbeKind

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a run's end beside its exit code."""

    message: str = ""  # the errors it wrote
    out_of_memory: bool = False


ORDINARY: Final = Ending()


class PodMachine:
    """Pure but for its own state; `now` comes from the caller and never goes back."""

    def __init__(self, spec: PodSpec, options: KubeletOptions) -> None:
        self.spec = spec
        self.options = options
        self.containers = {item.name: Container(item, options) for item in spec.containers}
        self._inits = [c for c in self.containers.values() if c.spec.init]
        self.mains = [c for c in self.containers.values() if not c.spec.init]
        self.delete_deadline: float | None = None

    # What happened.

    def on_started(self, name: str, run: int, *, now: float) -> None:
        if container := self._current(name, run):
            container.on_started(now)

    def on_exit(
        self, name: str, run: int, *, exit_code: int, now: float, ending: Ending = ORDINARY
    ) -> None:
        if container := self._current(name, run):
            reason = "OOMKilled" if ending.out_of_memory else "Error"
            reason = reason if exit_code else "Completed"
            container.on_exit(exit_code, reason=reason, message=ending.message, now=now)

    def on_start_failed(self, name: str, run: int, *, message: str, now: float) -> None:
        if container := self._current(name, run):
            container.on_exit(128, reason="StartError", message=message, now=now)

    def on_probe(
        self, name: str, run: int, *, kind: ProbeKind, answer: tuple[bool, str], now: float
    ) -> None:
        if container := self._current(name, run):
            container.on_probe(kind, ok=answer[0], message=answer[1], now=now)

    def on_pre_stop_done(self, name: str, run: int) -> None:
        if container := self._current(name, run):
            container.on_pre_stop_done()

    def delete(self, now: float, grace_s: float | None = None) -> None:
        """Begin the end, or bring it nearer: a second call may only shorten the grace."""
        grace = self.spec.grace_s if grace_s is None else grace_s
        deadline = now + grace
        self.delete_deadline = min(self.delete_deadline or deadline, deadline)
        for container in self.containers.values():
            if not container.spec.sidecar or grace == 0.0:
                container.begin_stop(now, self.delete_deadline - now)

    # What to do.

    def tick(self, now: float) -> Iterator[Action]:
        """Yield every action that is due now; each is yielded once."""
        if self.deleting or self.completed:
            self._stop_sidecars(now)
        else:
            for container in self._startable(now):
                yield container.start()
        for container in self.containers.values():
            yield from container.tick(now, self.spec.grace_s)

    def next_due(self) -> float:
        """Return when to tick again if nothing happens before."""
        due = [container.next_due() for container in self.containers.values()]
        if not self.deleting:
            due += [c.not_before for c in self.containers.values() if self.wants_run(c)]
        return min(due, default=_NEVER)

    # What it amounts to.

    @property
    def deleting(self) -> bool:
        return self.delete_deadline is not None

    @property
    def finished(self) -> bool:
        """No process is left and none will come."""
        idle = not any(container.active for container in self.containers.values())
        return idle and (self.deleting or self.completed)

    @property
    def initialized(self) -> bool:
        return all(self._init_done(container) for container in self._inits)

    @property
    def ready(self) -> bool:
        """Every main container and every sidecar is ready, and all init containers are done."""
        sidecars = [c for c in self._inits if c.spec.sidecar]
        return self.initialized and all(c.ready for c in (*sidecars, *self.mains))

    @property
    def completed(self) -> bool:
        """The main containers ended and stay so, or an init container failed for good."""
        mains_over = all(
            c.phase is ContainerPhase.TERMINATED and not self.wants_run(c) for c in self.mains
        )
        return mains_over or self.init_failed

    @property
    def init_failed(self) -> bool:
        return self.spec.restart_policy == "Never" and any(
            not c.spec.sidecar and c.ended is not None and c.ended.exit_code != 0
            for c in self._inits
        )

    def _current(self, name: str, run: int) -> Container | None:
        """Return the container unless the news is about one of its earlier runs."""
        container = self.containers[name]
        return container if container.run == run and container.active else None

    def _startable(self, now: float) -> Iterator[Container]:
        for container in self._inits:
            if self.wants_run(container) and now >= container.not_before:
                yield container
            if not self._init_done(container):
                return
        for container in self.mains:
            if self.wants_run(container) and now >= container.not_before:
                yield container

    def wants_run(self, container: Container) -> bool:
        """Say whether an idle container has a next run ahead of it."""
        if container.active:
            return False
        if container.ended is None or container.spec.sidecar:
            return True
        failed = container.ended.exit_code != 0
        if container.spec.init:
            return failed and self.spec.restart_policy != "Never"
        return self.spec.restart_policy == "Always" or (
            failed and self.spec.restart_policy == "OnFailure"
        )

    def _init_done(self, container: Container) -> bool:
        if container.spec.sidecar:
            # A sidecar that started once holds nobody up when it restarts later.
            return container.once_started
        return container.ended is not None and container.ended.exit_code == 0

    def _stop_sidecars(self, now: float) -> None:
        if any(c.active for c in self.containers.values() if not c.spec.sidecar):
            return
        for container in reversed(self._inits):
            if container.active:
                deadline = now if self.delete_deadline is None else self.delete_deadline
                grace = max(deadline - now, self.options.sidecar_grace_s)
                container.begin_stop(now, grace)
                return
