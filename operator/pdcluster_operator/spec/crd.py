"""The CustomResourceDefinition of PDCluster, made from the dataclasses."""

from typing import Any

from pdcluster_api.names import API_GROUP, API_VERSION
from pdcluster_api.schema import json_schema
from pdcluster_operator.spec.cluster import KIND, NAME_PATTERN, PDClusterSpec


def cluster_crd() -> dict[str, Any]:
    """Return the definition as `kubectl apply` takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"pdclusters.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": "pdclusters",
                "singular": "pdcluster",
                "shortNames": ["pdc"],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": API_VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Prefill", "integer", ".spec.prefill.replicas"),
            _column("Decode", "integer", ".spec.decode.replicas"),
            _column("Model", "string", ".spec.model.source"),
            _column("Age", "date", ".metadata.creationTimestamp"),
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "A model served with prefill and decode apart.",
                "required": ["metadata", "spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {
                        "type": "object",
                        # The only metadata keywords that the API server lets a schema restrict.
                        "properties": {"name": {"type": "string", "pattern": f"^{NAME_PATTERN}$"}},
                    },
                    "spec": json_schema(PDClusterSpec),
                    "status": {
                        "type": "object",
                        "description": "Written by the operator.",
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                },
            }
        },
    }


def _column(name: str, kind: str, path: str) -> dict[str, str]:
    return {"name": name, "type": kind, "jsonPath": path}
