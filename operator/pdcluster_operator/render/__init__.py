"""From a PDCluster and a planned group to Pod manifests. Pure."""

from pdcluster_operator.render.placement import Placement
from pdcluster_operator.render.pods import pod_hash, render_pod
from pdcluster_operator.render.secret import TOKEN_KEY, render_token_secret, token_secret_name

__all__ = [
    "TOKEN_KEY",
    "Placement",
    "pod_hash",
    "render_pod",
    "render_token_secret",
    "token_secret_name",
]
