"""What one worker is told, from the cluster's document."""

import dataclasses
import json
from typing import Final

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import Role
from pdcluster_api.schema import encode
from pdcluster_operator.spec.cluster import PDCluster, PoolSpec

ROLES: Final = (Role.PREFILL, Role.DECODE)


def pool_of(cluster: PDCluster, role: Role) -> PoolSpec:
    """Return the pool of a role."""
    return cluster.spec.prefill if role is Role.PREFILL else cluster.spec.decode


def served_name(cluster: PDCluster) -> str:
    """Return the name that clients use: as given, else the last part of the source."""
    model = cluster.spec.model
    return model.served_name or model.source.rstrip("/").split("/")[-1].split("?")[0] or "model"


def launch_spec(cluster: PDCluster, role: Role) -> LaunchSpec:
    """Return the launch specification of every worker of a pool."""
    spec = cluster.spec
    return LaunchSpec(
        role=role,
        cluster=cluster.key,
        model=dataclasses.replace(spec.model, served_name=served_name(cluster)),
        engine=pool_of(cluster, role).engine.over(spec.engine),
        transfer=spec.transfer,
        limits=dataclasses.replace(spec.limits, drain_timeout_s=spec.drain.timeout_seconds),
    )


def launch_json(launch: LaunchSpec) -> str:
    """Write it without defaults: a worker of another version must not meet a field it lacks
    unless somebody set it, and a new field with a default changes no pod."""
    return json.dumps(encode(launch, omit_defaults=True), sort_keys=True, separators=(",", ":"))
