"""A whole local cluster of scripted workers behind the real router."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from pdcluster_operator.local.kubelet import KubeletOptions
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec import PDCluster, read_cluster
from tests.wiring.kubelet_rig import NETWORK, REPOSITORY

QUICK = KubeletOptions(backoff_base_s=0.1, backoff_max_s=0.5, eager_period_s=0.05)
SCRIPTED = str(REPOSITORY / "tests/wiring/scripted_worker.py")
_IDLE = "import signal; signal.pause()"


def scripted_document(
    name: str, *, prefill: int = 1, decode: int = 1, **spec: Any
) -> dict[str, Any]:
    template = {
        "spec": {
            "initContainers": [
                {"name": "sidecar", "command": ["python", "-S", "-c", _IDLE], "livenessProbe": None}
            ],
            "containers": [{"name": "worker", "command": ["python", SCRIPTED]}],
        }
    }
    return {
        "apiVersion": "pdcluster.dev/v1alpha1",
        "kind": "PDCluster",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "tiny://llama?seed=0", "servedName": "scripted"},
            "prefill": {"replicas": prefill, "podTemplate": template},
            "decode": {"replicas": decode, "podTemplate": deepcopy(template)},
            **spec,
        },
    }


def scripted_cluster(name: str, *, prefill: int = 1, decode: int = 1, **spec: Any) -> PDCluster:
    return read_cluster(scripted_document(name, prefill=prefill, decode=decode, **spec))


def rig_settings(folder: Path) -> Settings:
    environ = dict(load_settings().inherited)
    environ["PDCLUSTER_STATE_DIR"] = str(folder / "state")
    environ["PDCLUSTER_CACHE_DIR"] = str(folder / "cache")
    environ["PDCLUSTER_LOCAL_RANGE"] = NETWORK
    return load_settings(environ)
