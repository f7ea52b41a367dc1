"""The pod of the router: the stock router and the registrar that tells it whom to use."""

import math
from typing import Any, Final

from pdcluster_api.names import (
    ENV_POD_IP,
    ENV_TOKEN_FILE,
    PORT_REGISTRAR,
    PORT_ROUTER,
    PORT_ROUTER_METRICS,
)
from pdcluster_api.schema import encode
from pdcluster_operator.render.parts import (
    environment,
    http_probe,
    ports,
    shared_mounts,
    shared_volumes,
)
from pdcluster_operator.render.placement import RUN_DIR, Placement
from pdcluster_operator.render.secret import token_secret_name
from pdcluster_operator.spec.cluster import PDCluster

GRACE_MARGIN_S: Final = 10
_POD_IP: Final = f"$({ENV_POD_IP})"


def router_spec(cluster: PDCluster, placement: Placement) -> dict[str, Any]:
    """Return the Pod's `spec`."""
    return {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _drain_seconds(cluster) + GRACE_MARGIN_S,
        "containers": [_router(cluster, placement), _registrar(cluster, placement)],
        "volumes": shared_volumes(token_secret_name(cluster)),
    }


def _router(cluster: PDCluster, placement: Placement) -> dict[str, Any]:
    router = cluster.spec.router
    return {
        "name": "router",
        "image": router.image,
        "command": ["smg", "launch", "--pd-disaggregation"],
        "args": [*_arguments(cluster), *router.extra_args],
        "env": environment(placement, {}),
        "ports": ports({"http": PORT_ROUTER, "metrics": PORT_ROUTER_METRICS}),
        "resources": encode(router.resources, omit_defaults=True),
        # No readiness probe: whether it *routes* is the registrar's to say.
        "startupProbe": http_probe("/health", PORT_ROUTER, period_s=1, failures=60),
        "livenessProbe": http_probe("/health", PORT_ROUTER, period_s=5, failures=6),
    }


def _arguments(cluster: PDCluster) -> list[str]:
    options = {
        "host": _POD_IP,
        "port": PORT_ROUTER,
        # A second router on one host fails at start when it shares the metrics address.
        "prometheus-host": _POD_IP,
        "prometheus-port": PORT_ROUTER_METRICS,
        "policy": cluster.spec.router.policy,
        "log-level": "warn",
        # Its default asks every 60 s: a worker that came back would get nothing for a minute.
        "health-check-interval-secs": 1,
        "health-check-timeout-secs": 2,
        "health-failure-threshold": 2,
        "health-success-threshold": 1,
        "worker-startup-check-interval": 1,
        "shutdown-grace-period-secs": max(_drain_seconds(cluster), 1),
    }
    flags = [
        "--disable-tokenizer-autoload",  # the workers tokenize; it would ask a model hub
        # A worker's 503 means "not now" (draining, full) and is retried elsewhere. The breaker
        # counts every retry, opens after two such requests, also for the innocent leg, and stays
        # open for a minute. The health checks above do its work.
        "--disable-circuit-breaker",
    ]
    return [word for key, value in options.items() for word in (f"--{key}", str(value))] + flags


def _registrar(cluster: PDCluster, placement: Placement) -> dict[str, Any]:
    return {
        "name": "registrar",
        "image": cluster.spec.router.image,
        "command": ["python", "-m", "pdcluster_operator.registrar"],
        "args": [
            *("--router", f"http://{_POD_IP}:{PORT_ROUTER}"),
            *("--host", _POD_IP),
            *("--port", str(PORT_REGISTRAR)),
            *("--state-file", f"{RUN_DIR}/desired.json"),
            *("--token-file", f"$({ENV_TOKEN_FILE})"),
        ],
        "env": environment(placement, {}),
        "ports": ports({"registrar": PORT_REGISTRAR}),
        "volumeMounts": shared_mounts(),
        "startupProbe": http_probe("/health", PORT_REGISTRAR, period_s=1, failures=60),
        "readinessProbe": http_probe("/ready", PORT_REGISTRAR, period_s=1, failures=1),
        "livenessProbe": http_probe("/health", PORT_REGISTRAR, period_s=5, failures=6),
    }


def _drain_seconds(cluster: PDCluster) -> int:
    return math.ceil(cluster.spec.drain.timeout_seconds)
