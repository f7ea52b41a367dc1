"""The PDCluster document: types, reading with every problem at once, the generated CRD. Pure."""

from pdcluster_operator.spec.cluster import Metadata, PDCluster, PDClusterSpec, PoolSpec, RouterSpec
from pdcluster_operator.spec.manifest import parse_manifest, read_cluster

__all__ = [
    "Metadata",
    "PDCluster",
    "PDClusterSpec",
    "PoolSpec",
    "RouterSpec",
    "parse_manifest",
    "read_cluster",
]
