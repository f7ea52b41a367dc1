"""The pod of one worker: the worker itself and its sidecar."""

import math
from typing import Any, Final

from pdcluster_api.names import ENV_CACHE_DIR, ENV_LAUNCH, Role
from pdcluster_api.schema import encode
from pdcluster_operator.render.launch import launch_json, launch_spec, pool_of
from pdcluster_operator.render.parts import (
    environment,
    http_probe,
    ports,
    shared_mounts,
    shared_volumes,
)
from pdcluster_operator.render.placement import CACHE_DIR, Placement
from pdcluster_operator.render.secret import token_secret_name
from pdcluster_operator.spec.cluster import PDCluster

STARTUP_BUDGET_S: Final = 1800  # loading a large model from slow storage; then the pod restarts
GRACE_MARGIN_S: Final = 15  # after the drain: last answers, memory unregistered, sidecar ends last


def worker_spec(cluster: PDCluster, role: Role, *, placement: Placement) -> dict[str, Any]:
    """Return the Pod's `spec`."""
    return {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": grace_seconds(cluster),
        "initContainers": [_sidecar(cluster, role, placement)],
        "containers": [_worker(cluster, role, placement)],
        "volumes": [*shared_volumes(token_secret_name(cluster)), _cache_volume(placement)],
    }


def grace_seconds(cluster: PDCluster) -> int:
    """Return a grace period that the drain fits into, so that the kubelet never cuts it short."""
    return math.ceil(cluster.spec.drain.timeout_seconds) + GRACE_MARGIN_S


def _worker(cluster: PDCluster, role: Role, placement: Placement) -> dict[str, Any]:
    launch = launch_spec(cluster, role)
    open_ports = {"http": launch.ports.http, "peer": launch.ports.peer}
    if role is Role.PREFILL:
        open_ports["bootstrap"] = launch.ports.bootstrap
    return {
        "name": "worker",
        "image": cluster.spec.image,
        "command": ["python", "-m", "pdcluster_worker"],
        "env": _environment(cluster, role, placement),
        "ports": ports(open_ports),
        "resources": encode(pool_of(cluster, role).resources, omit_defaults=True),
        "volumeMounts": [*shared_mounts(), {"name": "cache", "mountPath": CACHE_DIR}],
        "startupProbe": http_probe(
            "/health", launch.ports.http, period_s=1, failures=STARTUP_BUDGET_S
        ),
        "readinessProbe": http_probe("/health", launch.ports.http, period_s=2, failures=2),
        # Served by the frontend, which gives the scheduler its own limits (`limits.loopHangS`)
        # first; a frontend that hangs itself fails it by silence.
        "livenessProbe": http_probe("/live", launch.ports.http, period_s=5, failures=3),
    }


def _sidecar(cluster: PDCluster, role: Role, placement: Placement) -> dict[str, Any]:
    """Return the native sidecar: starts before the worker, ends after it, answers throughout."""
    launch = launch_spec(cluster, role)
    return {
        "name": "sidecar",
        "restartPolicy": "Always",
        "image": cluster.spec.image,
        "command": ["python", "-m", "pdcluster_worker.sidecar"],
        "env": _environment(cluster, role, placement),
        "ports": ports({"control": launch.ports.sidecar, "health": launch.ports.health}),
        "volumeMounts": shared_mounts(),
        # Overall health ("") is the sidecar's own; the worker's is another service name, so that
        # a hanging worker never restarts the process that reports it.
        "livenessProbe": {
            "grpc": {"port": launch.ports.health},
            "initialDelaySeconds": 5,
            "periodSeconds": 5,
            "timeoutSeconds": 2,
            "failureThreshold": 6,
        },
    }


def _environment(cluster: PDCluster, role: Role, placement: Placement) -> list[dict[str, Any]]:
    launch = launch_json(launch_spec(cluster, role))
    return environment(placement, {ENV_LAUNCH: launch, ENV_CACHE_DIR: CACHE_DIR})


def _cache_volume(placement: Placement) -> dict[str, Any]:
    if not placement.cache_host_path:
        return {"name": "cache", "emptyDir": {}}
    host_path = {"path": placement.cache_host_path, "type": "DirectoryOrCreate"}
    return {"name": "cache", "hostPath": host_path}
