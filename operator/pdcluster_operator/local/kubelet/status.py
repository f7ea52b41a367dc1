"""A pod's `status` as Kubernetes shapes it."""

from collections.abc import Callable
from typing import Any

from pdcluster_operator.local.kubelet.container import Container, ContainerPhase, Ended
from pdcluster_operator.local.kubelet.machine import PodMachine
from pdcluster_operator.local.kubelet.pod import ProbeKind

Stamp = Callable[[float], str]  # monotonic seconds -> RFC 3339


def pod_status(machine: PodMachine, *, pod_ip: str, stamp: Stamp) -> dict[str, Any]:
    """Return the status; equal states give equal dictionaries."""
    containers = machine.containers.values()
    return {
        "phase": _phase(machine),
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "hostIP": pod_ip,
        "conditions": _conditions(machine),
        "initContainerStatuses": [_container(machine, c, stamp) for c in containers if c.spec.init],
        "containerStatuses": [_container(machine, c, stamp) for c in containers if not c.spec.init],
    }


def refused_status(message: str) -> dict[str, Any]:
    """Return the status of a pod that this kubelet cannot run."""
    return {"phase": "Failed", "reason": "UnsupportedPod", "message": message, "conditions": []}


def _phase(machine: PodMachine) -> str:
    if machine.completed:
        ends = [c.ended for c in machine.mains]
        good = not machine.init_failed and all(e is not None and e.exit_code == 0 for e in ends)
        return "Succeeded" if good else "Failed"
    ran = any(c.run > 0 for c in machine.mains)
    return "Running" if machine.initialized and ran else "Pending"


def _conditions(machine: PodMachine) -> list[dict[str, Any]]:
    ready = machine.ready and not machine.deleting
    unready = [name for name, c in machine.containers.items() if not c.ready]
    message = f"not ready: {', '.join(unready)}" if unready else ""
    return [
        _condition("PodScheduled", holds=True),
        _condition("Initialized", holds=machine.initialized),
        _condition("ContainersReady", holds=machine.ready, message=message),
        _condition("Ready", holds=ready, message=message),
    ]


def _condition(kind: str, *, holds: bool, message: str = "") -> dict[str, Any]:
    condition = {"type": kind, "status": "True" if holds else "False"}
    return condition if holds else condition | {"message": message}


def _container(machine: PodMachine, container: Container, stamp: Stamp) -> dict[str, Any]:
    state = _state(container, stamp)
    if "terminated" in state and machine.wants_run(container) and not machine.deleting:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
    status: dict[str, Any] = {
        "name": container.spec.name,
        "ready": container.ready,
        "started": container.started,
        "restartCount": container.restarts,
        "state": state,
    }
    if container.ended is not None and "terminated" not in state:
        status["lastState"] = {"terminated": _terminated(container.ended, stamp)}
    return status


def _state(container: Container, stamp: Stamp) -> dict[str, Any]:
    if container.phase is ContainerPhase.TERMINATED and container.ended is not None:
        return {"terminated": _terminated(container.ended, stamp)}
    if container.started_at is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    running: dict[str, Any] = {"startedAt": stamp(container.started_at)}
    if message := _probe_message(container):
        running["probeMessage"] = message  # ours: a person wants to know what it waits for
    return {"running": running}


def _probe_message(container: Container) -> str:
    """Return what the probe said that keeps a running container from being ready, or ends it."""
    if container.stop_reason:
        return f"{container.stop_reason}; it is being ended"
    for kind in (ProbeKind.STARTUP, ProbeKind.READINESS):
        probe = container.probes.get(kind)
        if probe is not None and probe.verdict is not True:
            return probe.message
    return ""


def _terminated(ended: Ended, stamp: Stamp) -> dict[str, Any]:
    terminated: dict[str, Any] = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "finishedAt": stamp(ended.finished_at),
    }
    if ended.exit_code > 128:
        terminated["signal"] = ended.exit_code - 128
    if ended.message:
        terminated["message"] = ended.message
    if ended.started_at is not None:
        terminated["startedAt"] = stamp(ended.started_at)
    return terminated
