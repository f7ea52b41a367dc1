"""Names shared by everything: API group, labels, environment variables, ports.

One table each, so that the operator that writes a name and the worker that reads it cannot drift.
"""

from enum import StrEnum
from typing import Final

API_GROUP: Final = "pdcluster.dev"
API_VERSION: Final = "v1alpha1"
API: Final = f"{API_GROUP}/{API_VERSION}"


class Role(StrEnum):
    """What a worker does. ``aggregated`` is prefill and decode in one process, no hand-off."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"


# Labels on every object that belongs to a PDCluster.
LABEL_CLUSTER: Final = f"{API_GROUP}/cluster"
LABEL_ROLE: Final = f"{API_GROUP}/role"
LABEL_GROUP: Final = f"{API_GROUP}/group"
LABEL_FINGERPRINT: Final = f"{API_GROUP}/fingerprint"
LABEL_HASH: Final = f"{API_GROUP}/pod-hash"
ROLE_ROUTER: Final = "router"

# Environment of a worker container.
ENV_LAUNCH: Final = "PDCLUSTER_LAUNCH"  # the LaunchSpec as JSON (pdcluster_api.launch)
ENV_POD_NAME: Final = "PDCLUSTER_POD_NAME"
ENV_POD_UID: Final = "PDCLUSTER_POD_UID"
ENV_POD_IP: Final = "PDCLUSTER_POD_IP"
ENV_TOKEN_FILE: Final = "PDCLUSTER_TOKEN_FILE"  # noqa: S105 - the name of a variable
ENV_RUN_DIR: Final = "PDCLUSTER_RUN_DIR"  # ipc sockets of the pod; an emptyDir shared by containers
ENV_CACHE_DIR: Final = "PDCLUSTER_CACHE_DIR"  # converted models
ENV_LOG_LEVEL: Final = "PDCLUSTER_LOG_LEVEL"

# Every pod has an address of its own, so ports are the same everywhere.
PORT_HTTP: Final = 8000
PORT_BOOTSTRAP: Final = 8998
PORT_PEER: Final = 8997  # ZMQ control frames between workers
PORT_SIDECAR: Final = 50061  # gRPC, control
PORT_HEALTH: Final = 50062  # gRPC health only, in clear, for the kubelet
PORT_ROUTER: Final = 8080
PORT_ROUTER_METRICS: Final = 8081
PORT_REGISTRAR: Final = 8082

# Sockets inside the run directory.
SOCKET_REQUESTS: Final = "requests.sock"  # frontend -> scheduler
SOCKET_OUTPUTS: Final = "outputs.sock"  # scheduler -> frontend
SOCKET_STATUS: Final = "status.sock"  # anyone asks, the scheduler answers
