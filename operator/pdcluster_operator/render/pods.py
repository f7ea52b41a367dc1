"""One planned group to its Pod manifest."""

from typing import Any

from pdcluster_api.names import (
    LABEL_CLUSTER,
    LABEL_FINGERPRINT,
    LABEL_GROUP,
    LABEL_HASH,
    LABEL_ROLE,
    ROLE_ROUTER,
    Role,
)
from pdcluster_api.schema import encode
from pdcluster_operator.plan.fingerprint import digest, kv_fingerprint
from pdcluster_operator.render.launch import launch_json, launch_spec, pool_of
from pdcluster_operator.render.merge import merge
from pdcluster_operator.render.placement import Placement
from pdcluster_operator.render.router import router_spec
from pdcluster_operator.render.worker import worker_spec
from pdcluster_operator.spec.cluster import PDCluster, PodTemplate, Resources


def render_pod(
    cluster: PDCluster, role: str, *, index: int, placement: Placement
) -> dict[str, Any]:
    """Return the Pod of group `index` of a role (`prefill`, `decode` or `router`)."""
    group = f"{role}-{index}"
    template, spec = _template_and_spec(cluster, role, placement)
    labels = {
        LABEL_CLUSTER: cluster.metadata.name,
        LABEL_ROLE: role,
        LABEL_GROUP: group,
        LABEL_HASH: pod_hash(cluster, role),
    }
    if role != ROLE_ROUTER:
        labels[LABEL_FINGERPRINT] = kv_fingerprint(cluster.spec)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}
    merged: dict[str, Any] = merge(pod, template)
    # Ours win: a template cannot rename a pod or take it away from its cluster.
    metadata = merged["metadata"]
    metadata["name"] = f"{cluster.metadata.name}-{group}"
    metadata["namespace"] = cluster.metadata.namespace
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    return merged


def pod_hash(cluster: PDCluster, role: str) -> str:
    """Identify what a pod of this role is made from. Replicas are not in it, nor anything that
    this program's version adds while rendering: an upgrade of it changes no pod."""
    if role == ROLE_ROUTER:
        router = cluster.spec.router
        facts: list[Any] = [router.image, router.policy, list(router.extra_args)]
        facts += [_given(router.resources), _given(router.pod_template)]
        facts.append(cluster.spec.drain.timeout_seconds)
        return digest(facts)
    pool = pool_of(cluster, Role(role))
    launch = launch_json(launch_spec(cluster, Role(role)))
    facts = [cluster.spec.image, launch, _given(pool.resources), _given(pool.pod_template)]
    return digest(facts)


def _template_and_spec(
    cluster: PDCluster, role: str, placement: Placement
) -> tuple[dict[str, Any], dict[str, Any]]:
    if role == ROLE_ROUTER:
        return _given(cluster.spec.router.pod_template), router_spec(cluster, placement)
    pool = pool_of(cluster, Role(role))
    return _given(pool.pod_template), worker_spec(cluster, Role(role), placement=placement)


def _given(part: Resources | PodTemplate) -> dict[str, Any]:
    """Return what the document says, without what it leaves out."""
    document: dict[str, Any] = encode(part, omit_defaults=True)
    return document
