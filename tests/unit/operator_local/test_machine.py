"""The kubelet's decisions under a clock of our own. Each test is a story of one pod."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcluster_operator.errors import UnsupportedPod
from pdcluster_operator.local.kubelet.actions import Action, Ask, PreStop, Signal, Start
from pdcluster_operator.local.kubelet.machine import PodMachine
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.pod import ProbeKind, parse_pod
from pdcluster_operator.local.kubelet.status import pod_status

OPTIONS = KubeletOptions(
    backoff_base_s=1, backoff_max_s=8, backoff_reset_s=60, eager_period_s=0.5, sidecar_grace_s=2
)


@dataclass
class Story:
    """Drives one machine and notes what it asked for."""

    machine: PodMachine
    now: float = 100.0
    actions: list[Action] = field(default_factory=list)

    def tick(self, after_s: float = 0.0) -> list[Action]:
        self.now += after_s
        self.actions = list(self.machine.tick(self.now))
        return self.actions

    def start(self, *names: str) -> None:
        for name in names:
            self.machine.on_started(name, self.machine.containers[name].run, now=self.now)

    def exit(self, name: str, code: int = 0) -> None:
        run = self.machine.containers[name].run
        self.machine.on_exit(name, run, exit_code=code, now=self.now)

    def probe(self, name: str, kind: ProbeKind, *, ok: bool) -> None:
        run = self.machine.containers[name].run
        self.machine.on_probe(name, run, kind=kind, answer=(ok, "why"), now=self.now)

    def status(self) -> dict[str, Any]:
        return pod_status(self.machine, pod_ip="127.0.0.9", stamp=lambda seconds: f"{seconds:g}")


def story(
    *names: str, init: Iterable[dict[str, Any]] = (), grace_s: int = 10, **main: Any
) -> Story:
    policy = main.pop("restartPolicy", "Always")
    containers = [{"name": name, "command": ["run"], **main} for name in names]
    inits = [{"command": ["run"], **item} for item in init]
    manifest = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "containers": containers,
            "initContainers": inits,
            "terminationGracePeriodSeconds": grace_s,
            "restartPolicy": policy,
        },
    }
    return Story(PodMachine(parse_pod(manifest), OPTIONS))


def starts(actions: list[Action]) -> list[str]:
    return [action.container for action in actions if isinstance(action, Start)]


def signals(actions: list[Action]) -> list[tuple[str, int]]:
    return [(a.container, a.signal) for a in actions if isinstance(a, Signal)]


SIDE = {"name": "side", "restartPolicy": "Always"}
PROBE = {"tcpSocket": {"port": 1}, "periodSeconds": 4, "failureThreshold": 2, "timeoutSeconds": 1}


def test_containers_start_in_order_and_each_is_asked_for_once() -> None:
    pod = story("a", "b", init=[{"name": "i"}, SIDE | {"startupProbe": PROBE}])
    assert starts(pod.tick()) == ["i"]
    assert pod.tick() == []
    pod.start("i")
    pod.exit("i")
    assert starts(pod.tick()) == ["side"]
    pod.start("side")
    assert isinstance(pod.tick()[0], Ask)
    assert pod.status()["phase"] == "Pending"
    pod.probe("side", ProbeKind.STARTUP, ok=True)
    assert starts(pod.tick()) == ["a", "b"]
    pod.start("a", "b")
    assert pod.machine.ready
    assert pod.status()["phase"] == "Running"


def test_back_off_doubles_up_to_its_limit_and_starts_over_after_a_long_run() -> None:
    pod = story("a")
    pod.tick()
    pauses = []
    for _ in range(6):
        pod.start("a")
        pod.exit("a", 1)
        pauses.append(pod.machine.next_due() - pod.now)
        assert starts(pod.tick(pauses[-1] - 0.01)) == []
        assert starts(pod.tick(0.01)) == ["a"]
    assert pauses == [1, 2, 4, 8, 8, 8]
    pod.start("a")
    pod.now += 61
    pod.exit("a", 1)
    assert pod.machine.next_due() - pod.now == 1
    assert pod.status()["containerStatuses"][0]["restartCount"] == 6


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 1, "Failed"), ("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded")],
)
def test_restart_policies_that_end(policy: str, code: int, phase: str) -> None:
    pod = story("a", init=[SIDE], restartPolicy=policy)
    pod.tick()
    pod.start("side")
    pod.tick()
    pod.start("a")
    pod.exit("a", code)
    assert signals(pod.tick()) == [("side", SIGTERM)]
    pod.exit("side")
    assert starts(pod.tick(100)) == []
    assert pod.machine.finished
    assert pod.status()["phase"] == phase


def test_on_failure_restarts_what_failed() -> None:
    pod = story("a", restartPolicy="OnFailure")
    pod.tick()
    pod.start("a")
    pod.exit("a", 1)
    assert starts(pod.tick(2)) == ["a"]


def test_startup_gates_liveness_and_readiness_and_is_not_asked_again() -> None:
    pod = story("a", startupProbe=PROBE, livenessProbe=PROBE, readinessProbe=PROBE)
    pod.tick()
    pod.start("a")
    assert [a.kind for a in pod.tick() if isinstance(a, Ask)] == [ProbeKind.STARTUP]
    pod.probe("a", ProbeKind.STARTUP, ok=True)
    asked = {a.kind for a in pod.tick() if isinstance(a, Ask)}
    assert asked == {ProbeKind.LIVENESS, ProbeKind.READINESS}
    assert not pod.machine.ready
    pod.probe("a", ProbeKind.READINESS, ok=True)
    assert pod.machine.ready


def test_eager_asks_do_not_shorten_the_failure_budget() -> None:
    """2 failures at 4 s are 8 s, also when a probe is asked every half second."""
    pod = story("a", startupProbe=PROBE)
    pod.tick()
    pod.start("a")
    begun = pod.now
    while not signals(pod.actions):
        for action in pod.tick():
            if isinstance(action, Ask):
                pod.probe("a", action.kind, ok=False)
        pod.now += 0.25
    assert 7 <= pod.now - begun <= 9


def test_readiness_lost_and_regained_restarts_nothing() -> None:
    pod = story("a", readinessProbe=PROBE)
    pod.tick()
    pod.start("a")
    for ok, ready in ((True, True), (False, True), (False, False), (True, True)):
        assert any(isinstance(action, Ask) for action in pod.tick(4))
        pod.probe("a", ProbeKind.READINESS, ok=ok)
        assert pod.machine.ready is ready
    assert signals(pod.tick()) == []


def test_failed_liveness_stops_with_grace_then_kill_then_restarts() -> None:
    pod = story("a", grace_s=10, livenessProbe=PROBE)
    pod.tick()
    pod.start("a")
    for _ in range(16):
        pod.tick(0.5)
        pod.probe("a", ProbeKind.LIVENESS, ok=False)
    assert signals(pod.tick(0.5)) == [("a", SIGTERM)]
    assert signals(pod.tick(9)) == []
    assert signals(pod.tick(1)) == [("a", SIGKILL)]
    pod.exit("a", 137)
    state = pod.status()["containerStatuses"][0]
    assert state["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert state["lastState"]["terminated"]["signal"] == 9
    assert "liveness probe failed: why" in state["lastState"]["terminated"]["reason"]
    assert starts(pod.tick(1)) == ["a"]


def test_deletion_runs_the_hook_then_term_and_sidecars_go_last_in_reverse() -> None:
    hook = {"preStop": {"exec": {"command": ["hook"]}}}
    pod = story("a", init=[SIDE, SIDE | {"name": "side2"}], grace_s=10, lifecycle=hook)
    for name in ("side", "side2", "a"):
        pod.tick()
        pod.start(name)
    pod.machine.delete(pod.now)
    assert pod.tick() == [PreStop("a", 1)]
    assert pod.tick(1) == []
    pod.machine.on_pre_stop_done("a", 1)
    assert signals(pod.tick()) == [("a", SIGTERM)]
    pod.exit("a")
    assert signals(pod.tick()) == [("side2", SIGTERM)]
    pod.exit("side2")
    assert signals(pod.tick()) == [("side", SIGTERM)]
    assert not pod.machine.finished
    pod.exit("side")
    assert pod.machine.finished


def test_a_hook_that_hangs_is_within_the_grace_period() -> None:
    pod = story("a", grace_s=10, lifecycle={"preStop": {"exec": {"command": ["hook"]}}})
    pod.tick()
    pod.start("a")
    pod.machine.delete(pod.now)
    pod.tick()
    assert signals(pod.tick(10)) == [("a", SIGKILL)]


def test_a_second_delete_may_only_hurry() -> None:
    pod = story("a", init=[SIDE], grace_s=10)
    for name in ("side", "a"):
        pod.tick()
        pod.start(name)
    pod.machine.delete(pod.now)
    assert signals(pod.tick()) == [("a", SIGTERM)]
    pod.machine.delete(pod.now, 100)
    assert pod.machine.delete_deadline == pod.now + 10
    pod.machine.delete(pod.now, 0)
    assert signals(pod.tick()) == [("side", SIGKILL), ("a", SIGKILL)]


def test_a_pod_deleted_while_it_starts_is_stopped_when_the_process_is_there() -> None:
    pod = story("a")
    pod.tick()
    pod.machine.delete(pod.now)
    assert pod.tick() == []
    pod.start("a")
    assert signals(pod.tick()) == [("a", SIGTERM)]
    pod.exit("a", 143)
    assert pod.machine.finished
    assert starts(pod.tick(100)) == []


def test_news_of_an_earlier_run_is_ignored() -> None:
    pod = story("a")
    pod.tick()
    pod.start("a")
    pod.exit("a", 1)
    pod.tick(1)
    pod.machine.on_exit("a", 1, exit_code=0, now=pod.now)
    pod.start("a")
    pod.machine.on_probe("a", 1, kind=ProbeKind.LIVENESS, answer=(False, ""), now=pod.now)
    assert pod.machine.ready


@given(
    st.lists(st.sampled_from(["tick", "start", "exit0", "exit1", "delete", "wait"]), max_size=40)
)
@settings(max_examples=200)
def test_whatever_happens_no_run_starts_twice_and_none_after_deletion(events: list[str]) -> None:
    pod = story("a", "b", init=[{"name": "i"}, SIDE])
    seen: set[tuple[str, int]] = set()
    for event in events:
        for action in pod.tick(5.0 if event == "wait" else 0.1):
            if isinstance(action, Start):
                assert not pod.machine.deleting
                assert (action.container, action.run) not in seen
                seen.add((action.container, action.run))
        for name, container in pod.machine.containers.items():
            if event == "start" and container.phase.value == "starting":
                pod.start(name)
            elif event in ("exit0", "exit1") and container.started_at is not None:
                pod.exit(name, int(event[-1]))
        if event == "delete":
            pod.machine.delete(pod.now)
        pod.status()


@pytest.mark.parametrize(
    "spec",
    [{"containers": []}, {"containers": [{"name": "a", "image": "x"}]}],
)
def test_pods_that_cannot_run_here_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedPod):
        parse_pod({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
