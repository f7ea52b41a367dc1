"""The Secret with the token that the parts of one cluster show each other."""

import base64
from typing import Any, Final

from pdcluster_api.names import LABEL_CLUSTER
from pdcluster_operator.spec.cluster import PDCluster

TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a key


def token_secret_name(cluster: PDCluster) -> str:
    """Return the name of the cluster's Secret."""
    return f"{cluster.metadata.name}-token"


def render_token_secret(cluster: PDCluster, token: str) -> dict[str, Any]:
    """Return the Secret that holds `token`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token_secret_name(cluster),
            "namespace": cluster.metadata.namespace,
            "labels": {LABEL_CLUSTER: cluster.metadata.name},
        },
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }
