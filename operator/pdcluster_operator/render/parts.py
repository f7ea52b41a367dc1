"""Small pieces of Pod manifests that worker and router pods share."""

from collections.abc import Mapping
from typing import Any, Final

from pdcluster_api.names import (
    ENV_LOG_LEVEL,
    ENV_POD_IP,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_RUN_DIR,
    ENV_TOKEN_FILE,
)
from pdcluster_operator.render.placement import RUN_DIR, TOKEN_DIR, Placement
from pdcluster_operator.render.secret import TOKEN_KEY

_FIELDS: Final = {
    ENV_POD_NAME: "metadata.name",
    ENV_POD_UID: "metadata.uid",
    ENV_POD_IP: "status.podIP",
}


def environment(placement: Placement, extra: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the environment of a container of ours: who it is, where things are, and `extra`."""
    downward = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _FIELDS.items()
    ]
    plain = {
        ENV_RUN_DIR: RUN_DIR,
        ENV_TOKEN_FILE: f"{TOKEN_DIR}/{TOKEN_KEY}",
        ENV_LOG_LEVEL: placement.log_level,
        **extra,
    }
    return downward + [{"name": name, "value": value} for name, value in plain.items()]


def shared_volumes(token_secret: str) -> list[dict[str, Any]]:
    """Return the volumes that every pod of ours has."""
    return [
        {"name": "run", "emptyDir": {}},
        {"name": "token", "secret": {"secretName": token_secret, "defaultMode": 0o400}},
    ]


def shared_mounts() -> list[dict[str, Any]]:
    """Return the mounts of `shared_volumes`."""
    return [
        {"name": "run", "mountPath": RUN_DIR},
        {"name": "token", "mountPath": TOKEN_DIR, "readOnly": True},
    ]


def http_probe(path: str, port: int, *, period_s: int, failures: int) -> dict[str, Any]:
    """Return an HTTP probe; the kubelet asks the pod's own address."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def ports(named: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return container ports by name."""
    return [{"name": name, "containerPort": port} for name, port in named.items()]
