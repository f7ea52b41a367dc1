"""Addresses, environment, paths, logs."""

from pathlib import Path

import pytest

from pdcluster_operator.errors import AlreadyRunning, NoAddress, NotRunning, UnsupportedPod
from pdcluster_operator.local.kubelet.addresses import AddressPool
from pdcluster_operator.local.kubelet.environ import expand
from pdcluster_operator.local.kubelet.logs import RotatingLog
from pdcluster_operator.local.kubelet.pod import parse_pod
from pdcluster_operator.local.kubelet.volumes import PodVolumes
from pdcluster_operator.local.rundir import RunDir, running

NETWORK, LOCK_PORT = "127.79.1.0/29", 49152


def test_an_address_in_use_is_never_handed_out_again_by_anybody() -> None:
    one, other = AddressPool(NETWORK, LOCK_PORT), AddressPool(NETWORK, LOCK_PORT)
    taken = [one.take(), other.take(), one.take(), other.take(), one.take(), one.take()]
    assert len(set(taken)) == 6
    with pytest.raises(NoAddress):
        other.take()
    one.free(taken[0])
    assert other.take() == taken[0]
    one.close()
    other.close()


def test_a_freed_address_comes_last() -> None:
    pool = AddressPool(NETWORK, LOCK_PORT)
    first = pool.take()
    pool.free(first)
    assert [pool.take() for _ in range(5)].count(first) == 0
    assert pool.take() == first
    pool.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$(A)/$(B)", "1/$(B)"), ("$$(A)", "$(A)"), ("$A $(", "$A $("), ("$(A)$(A)", "11")],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["x"]},
        {"name": "a"},
        {"name": "a", "command": ["x"], "env": 5},
        {"name": "a", "command": ["x"], "livenessProbe": {"tcpSocket": {"port": "nope"}}},
        {"name": "a", "command": ["x"], "livenessProbe": {"tcpSocket": {"host": "x"}}},
        {"name": "a", "command": ["x"], "livenessProbe": {"periodSeconds": "soon"}},
        "a",
    ],
)
def test_what_is_no_pod_is_refused_and_ends_nothing_else(container: object) -> None:
    manifest = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}}
    with pytest.raises(UnsupportedPod):
        parse_pod(manifest)


def test_mount_paths_are_translated_as_whole_paths_only(tmp_path: Path) -> None:
    manifest = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "command": ["x"],
                    "volumeMounts": [
                        {"name": "v", "mountPath": "/run/x"},
                        {"name": "v", "mountPath": "/run/x/deep", "subPath": "sub"},
                    ],
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
    spec = parse_pod(manifest)
    volumes = PodVolumes(spec, tmp_path / "1", lambda *_: None)
    translate = volumes.translator(spec.containers[0])
    here = f"{tmp_path}/1/v"
    assert translate("/run/x") == here
    assert translate("--f=/run/x/a.sock,/run/x") == f"--f={here}/a.sock,{here}"
    assert translate("/run/x/deep/y") == f"{here}/sub/y"
    for other in ("/run/xy", "/other/run/x", "/run/x.d", "http://h/run/x"):
        assert translate(other) == other
    volumes.remove()
    assert not (tmp_path / "1").exists()


def test_logs_rotate_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "a.log", bytes_max=10, files_max=3)
    for number in range(8):
        log.write(b"%d234567\n" % number)
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.log", "a.log.1", "a.log.2"]
    assert (tmp_path / "a.log").read_bytes() == b"7234567\n"
    assert (tmp_path / "a.log.2").read_bytes() == b"5234567\n"


def test_a_cluster_runs_once_and_is_found_while_it_runs(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path, "c")
    with pytest.raises(NotRunning):
        rundir.info()
    with rundir.owned():
        rundir.publish(tmp_path / "s")
        assert rundir.info().control == str(tmp_path / "s")
        assert [found.name for found in running(tmp_path)] == ["c"]
        with pytest.raises(AlreadyRunning), RunDir(tmp_path, "c").owned():
            pass
    assert running(tmp_path) == []
