"""Rendered pods: what another program relies on."""

import json
from pathlib import Path
from typing import Any

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import ENV_LAUNCH, LABEL_FINGERPRINT, LABEL_HASH, Role
from pdcluster_api.schema import decode
from pdcluster_operator.plan import kv_fingerprint
from pdcluster_operator.render import Placement, pod_hash, render_pod, render_token_secret
from pdcluster_operator.render.merge import merge
from pdcluster_operator.spec import PDCluster, read_cluster


def cluster(**spec: Any) -> PDCluster:
    return read_cluster(
        {
            "apiVersion": "pdcluster.dev/v1alpha1",
            "kind": "PDCluster",
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"model": {"source": "folder/model"}, **spec},
        }
    )


def launch_of(pod: dict[str, Any]) -> LaunchSpec:
    env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
    return decode(LaunchSpec, json.loads(str(env[ENV_LAUNCH])))


def test_a_worker_is_told_what_the_document_says() -> None:
    wanted = cluster(
        engine={"threads": 3}, decode={"engine": {"kvPages": 77}}, drain={"timeoutSeconds": 12.5}
    )
    launch = launch_of(render_pod(wanted, "decode", index=0, placement=Placement()))
    assert launch.role is Role.DECODE
    assert launch.cluster == "n/c"
    assert launch.model.served_name == "model"
    assert (launch.engine.threads, launch.engine.kv_pages) == (3, 77)
    assert launch.limits.drain_timeout_s == 12.5


def test_the_shape_of_a_worker_pod() -> None:
    pod = render_pod(
        cluster(drain={"timeoutSeconds": 20}), "prefill", index=4, placement=Placement()
    )
    (sidecar,), (worker,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert pod["metadata"]["name"] == "c-prefill-4"
    assert pod["metadata"]["labels"][LABEL_FINGERPRINT] == kv_fingerprint(cluster().spec)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["command"][-1] == "pdcluster_worker.sidecar"
    assert sidecar["livenessProbe"]["grpc"] == {"port": 50062}
    assert worker["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert worker["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert pod["spec"]["terminationGracePeriodSeconds"] > 20
    mounted = {mount["name"] for mount in worker["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_the_shape_of_a_router_pod() -> None:
    pod = render_pod(
        cluster(router={"extraArgs": ["--x", "1"]}), "router", index=0, placement=Placement()
    )
    router, registrar = pod["spec"]["containers"]
    assert router["command"] == ["smg", "launch", "--pd-disaggregation"]
    assert router["args"][-2:] == ["--x", "1"]
    assert registrar["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8082}
    assert LABEL_FINGERPRINT not in pod["metadata"]["labels"]


def test_a_pod_template_adds_changes_and_removes_but_never_renames() -> None:
    template = {
        "metadata": {"name": "mine", "labels": {"team": "a", LABEL_HASH: "mine"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "containers": [
                {"name": "worker", "env": [{"name": "X", "value": "1"}], "readinessProbe": None}
            ],
            "volumes": [{"name": "cache", "emptyDir": None, "hostPath": {"path": "/c"}}],
        },
    }
    wanted = cluster(decode={"podTemplate": template})
    pod = render_pod(wanted, "decode", index=0, placement=Placement())
    (worker,) = pod["spec"]["containers"]
    assert pod["metadata"]["name"] == "c-decode-0"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"][LABEL_HASH] == pod_hash(wanted, "decode")
    assert worker["command"][0] == "python"
    assert {"name": "X", "value": "1"} in worker["env"]
    assert "readinessProbe" not in worker
    assert {"name": "cache", "hostPath": {"path": "/c"}} in pod["spec"]["volumes"]


def test_the_hash_ignores_replicas_and_the_other_pool() -> None:
    base = pod_hash(cluster(), "decode")
    assert pod_hash(cluster(decode={"replicas": 9}, router={"replicas": 2}), "decode") == base
    assert pod_hash(cluster(prefill={"engine": {"threads": 4}}), "decode") == base
    assert pod_hash(cluster(decode={"engine": {"threads": 4}}), "decode") != base
    assert pod_hash(cluster(image="other"), "decode") != base
    # Pinned: a change here would replace every running pod on upgrade.
    assert base == "36e5eba556908a34"


def test_rendering_does_not_touch_the_document(tmp_path: Path) -> None:
    wanted = cluster(decode={"podTemplate": {"metadata": {"labels": {"a": "b"}}}})
    first = render_pod(
        wanted, "decode", index=0, placement=Placement(cache_host_path=str(tmp_path))
    )
    assert (
        render_pod(wanted, "decode", index=0, placement=Placement(cache_host_path=str(tmp_path)))
        == first
    )
    assert wanted.spec.decode.pod_template.metadata == {"labels": {"a": "b"}}


def test_the_token_secret_holds_what_it_is_given() -> None:
    secret = render_token_secret(cluster(), "t")
    assert (secret["metadata"]["name"], secret["data"]) == ("c-token", {"token": "dA=="})


def test_merge_replaces_plain_lists_and_merges_named_ones() -> None:
    base = {"args": [1, 2], "env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
    over = {"args": [3], "env": [{"name": "b", "value": "3"}, {"name": "c", "value": "4"}]}
    assert merge(base, over) == {
        "args": [3],
        "env": [
            {"name": "a", "value": "1"},
            {"name": "b", "value": "3"},
            {"name": "c", "value": "4"},
        ],
    }
