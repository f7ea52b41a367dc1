"""Runs Pod manifests as local processes.

`machine.py` decides: a pod's containers, their probes, restarts and end, as a state machine that
is fed what happened and the time, and answers with actions. `kubelet.py` acts: it starts
processes, asks probes, sends signals, writes logs, and feeds back what happened. Where pods come
from and where their status goes is a port (`source.py`), so the same kubelet can serve a manifest
file or an API server.
"""

from pdcluster_operator.local.kubelet.kubelet import Kubelet, Places
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.source import MemorySource, PodRecord, PodSource

__all__ = ["Kubelet", "KubeletOptions", "MemorySource", "Places", "PodRecord", "PodSource"]
