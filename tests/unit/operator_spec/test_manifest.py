"""The PDCluster document."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pdcluster_api.schema import encode
from pdcluster_operator.errors import ManifestError
from pdcluster_operator.spec import PDCluster, PDClusterSpec, parse_manifest, read_cluster
from pdcluster_operator.spec.crd import cluster_crd
from pdcluster_operator.spec.generate import CRD_BYTES_MAX, generated, main

REPOSITORY = Path(__file__).parents[3]


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pdcluster.dev/v1alpha1",
        "kind": "PDCluster",
        "metadata": {"name": "c"},
        "spec": {"model": {"source": "tiny://llama"}, **spec},
    }


def problems(value: object) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        read_cluster(value)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("examples/*.yaml")), ids=lambda p: p.name)
def test_examples_are_valid_and_survive_a_round_trip(path: Path) -> None:
    cluster = parse_manifest(path.read_text(), source=path.name)
    again = document() | {
        "metadata": encode(cluster.metadata, omit_defaults=True),
        "spec": encode(cluster.spec),
    }
    assert read_cluster(again) == cluster


def test_every_problem_at_once_over_envelope_metadata_and_spec() -> None:
    found = problems(
        {
            "apiVersion": "v1",
            "kind": "PDCluster",
            "metadata": {"name": "Upper", "lables": {}},
            "spec": {"model": {"source": 1}, "prefill": {"replicas": -1, "podTemplate": {"x": 1}}},
            "spce": {},
        }
    )
    assert [line.split(":")[0] for line in found] == [
        "apiVersion",
        "spce",
        "metadata.lables",
        "metadata.name",
        "spec.model.source",
        "spec.prefill.replicas",
        "spec.prefill.podTemplate.x",
    ]
    assert "spec.prefill.replicas: -1 is not allowed: must be >= 0 and <= 1000" in found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"transfer": {"backend": "loopback"}}, "spec.transfer.backend"),
        (
            {"prefill": {"podTemplate": {"metadata": {"labels": 7}}}},
            "spec.prefill.podTemplate.metadata.labels",
        ),
        (
            {"router": {"podTemplate": {"metadata": {"annotations": {"a": 7}}}}},
            "spec.router.podTemplate.metadata.annotations",
        ),
        (
            {"decode": {"podTemplate": {"spec": {"containers": ["worker"]}}}},
            "spec.decode.podTemplate.spec.containers",
        ),
        (
            {"decode": {"podTemplate": {"spec": {"volumes": {"a": {}}}}}},
            "spec.decode.podTemplate.spec.volumes",
        ),
        ({"engine": {"chunkTokens": 100}}, "spec.engine.chunkTokens"),
        ({"prefill": {"engine": {"chunkTokens": 9}}}, "spec.prefill.engine.chunkTokens"),
        ({"limits": {"drainTimeoutS": 7}}, "spec.limits.drainTimeoutS"),
        ({"limits": {"heartbeatTimeoutS": 1.0}}, "spec.limits.heartbeatTimeoutS"),
        (
            {
                "model": {"source": "x", "contextTokensMax": 33},
                "engine": {"kvPages": 2},
            },
            "spec.model.contextTokensMax",
        ),
    ],
)
def test_rules_over_several_fields(spec: dict[str, Any], expected: str) -> None:
    assert {line.split(":")[0] for line in problems(document(**spec))} == {expected}


def test_what_an_api_server_adds_is_no_problem() -> None:
    served = document() | {"status": {"anything": 1}}
    served["metadata"] = {
        "name": "c",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 2,
        "managedFields": [],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    assert read_cluster(served).metadata.uid == "u"


@pytest.mark.parametrize("text", ["", "a: 1\n---\nb: 2", "a: [", "- 1", "just text"])
def test_what_is_no_single_document_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(text)


def test_overrides_apply_to_one_pool_only() -> None:
    cluster = read_cluster(document(engine={"threads": 2}, decode={"engine": {"kvPages": 9}}))
    spec = cluster.spec
    assert spec.decode.engine.over(spec.engine).kv_pages == 9
    assert spec.decode.engine.over(spec.engine).threads == 2
    assert spec.prefill.engine.over(spec.engine) == spec.engine


def test_the_crd_is_small_generated_and_structural() -> None:
    assert main(["--check", str(REPOSITORY / "crds")]) == 0
    for text in generated().values():
        assert len(text.encode()) < CRD_BYTES_MAX
        assert yaml.safe_load(text)["spec"]["group"] == "pdcluster.dev"
    version = cluster_crd()["spec"]["versions"][0]
    assert_structural(version["schema"]["openAPIV3Schema"])
    assert version["subresources"] == {"status": {}}


def assert_structural(schema: dict[str, Any], path: str = "") -> None:
    """Every node has a type (or is free-form), and every property of ours a description."""
    assert "type" in schema or "x-kubernetes-preserve-unknown-fields" in schema, path
    for name, child in schema.get("properties", {}).items():
        if path.startswith(".spec"):
            assert child.get("description"), f"{path}.{name}"
        assert_structural(child, f"{path}.{name}")


def test_the_crd_defaults_equal_ours() -> None:
    """What the API server fills in is what we would have filled in."""
    schema = cluster_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    filled = fill({"model": {"source": "x"}}, schema)
    sparse = read_cluster(document(model={"source": "x"}))
    assert read_cluster(document(**filled)) == sparse
    assert isinstance(sparse, PDCluster)
    assert isinstance(sparse.spec, PDClusterSpec)


def fill(value: Any, schema: dict[str, Any]) -> Any:
    """Default like the API server: top down, absent fields only."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in result and "default" in child:
            result[name] = child["default"]
        if name in result:
            result[name] = fill(result[name], child)
    return result
