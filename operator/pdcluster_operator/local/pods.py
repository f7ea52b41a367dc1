"""A local cluster's pods: planned, rendered, created and deleted through the pod source."""

from typing import Any, Final

from pdcluster_api.names import (
    LABEL_FINGERPRINT,
    LABEL_GROUP,
    LABEL_HASH,
    LABEL_ROLE,
    PORT_BOOTSTRAP,
    PORT_HTTP,
    ROLE_ROUTER,
    Role,
)
from pdcluster_operator.local.kubelet import MemorySource, PodRecord
from pdcluster_operator.local.reasons import first_start, last_end, why_not_ready
from pdcluster_operator.plan import Create, Delete, Group, PoolTarget, plan_pool
from pdcluster_operator.registrar.desired import Desired, Worker
from pdcluster_operator.render import Placement, pod_hash, render_pod
from pdcluster_operator.render.launch import served_name
from pdcluster_operator.spec import PDCluster

ROLES: Final = (Role.PREFILL.value, Role.DECODE.value, ROLE_ROUTER)


class ClusterPods:
    """The same plan and rendering as in a cluster, applied to a source in memory."""

    def __init__(self, cluster: PDCluster, source: MemorySource, placement: Placement) -> None:
        self._cluster = cluster
        self._source = source
        self._placement = placement
        self._was_ready: set[str] = set()

    def records(self, *roles: str) -> list[PodRecord]:
        """Return the pods of these roles (all when none is named), by name."""
        wanted = roles or ROLES
        found = [pod for pod in self._source.pods() if pod.labels.get(LABEL_ROLE) in wanted]
        return sorted(found, key=lambda pod: pod.name)

    def plan(self, *, replicas: dict[str, int] | None = None) -> None:
        """Plan every pool once and carry it out; `replicas` overrides the document's."""
        counts = replicas if replicas is not None else self._cluster.spec.replicas()
        for role in ROLES:
            if role in counts:
                self._apply(PoolTarget(role, counts[role], pod_hash(self._cluster, role)))

    def hurry(self, role: str | None = None) -> None:
        """End pods now, without grace."""
        for pod in self.records(*(() if role is None else (role,))):
            self._source.delete(pod.uid, 0.0)

    def desired_workers(self) -> Desired:
        """Return the list for the router: every worker that has been ready and is not leaving.

        One that is unready for a moment stays: the router's own health checks pause it, and taking
        it out would cost a drain in the router before it could come back.
        """
        pods = self.records(Role.PREFILL, Role.DECODE)
        self._was_ready.update(pod.uid for pod in pods if pod.ready)
        listed = [pod for pod in pods if pod.uid in self._was_ready and not pod.deleting]
        return Desired(model=served_name(self._cluster), workers=tuple(map(_worker, listed)))

    def _render(self, role: str, index: int) -> dict[str, Any]:
        return render_pod(self._cluster, role, index=index, placement=self._placement)

    def _apply(self, target: PoolTarget) -> None:
        pods = {_index(pod): pod for pod in self.records(target.role)}
        for step in plan_pool(target, map(_group, pods.values())):
            match step:
                case Create(role=role, index=index):
                    self._source.create(self._render(role, index))
                case Delete(index=index):
                    self._source.delete(pods[index].uid)


def worker_address(pod: PodRecord) -> str:
    """Return the base URL of a worker's HTTP surface."""
    return f"http://{pod.status['podIP']}:{PORT_HTTP}"


def summary(pod: PodRecord) -> dict[str, Any]:
    """Return what people want to know of a pod."""
    statuses = [
        *pod.status.get("initContainerStatuses", ()),
        *pod.status.get("containerStatuses", ()),
    ]
    return {
        "name": pod.name,
        "role": pod.labels.get(LABEL_ROLE, ""),
        "ip": pod.status.get("podIP", ""),
        "phase": "Terminating" if pod.deleting else pod.status.get("phase", "Pending"),
        "ready": pod.ready,
        "restarts": sum(item["restartCount"] for item in statuses),
        "message": pod.status.get("message", "") or why_not_ready(statuses),
        "lastEnd": last_end(statuses),
        "loading": first_start(statuses),
        "status": pod.status,
    }


def _index(pod: PodRecord) -> int:
    return int(pod.labels[LABEL_GROUP].rpartition("-")[2])


def _group(pod: PodRecord) -> Group:
    return Group(
        role=pod.labels[LABEL_ROLE],
        index=_index(pod),
        pod_hash=pod.labels[LABEL_HASH],
        ready=pod.ready,
        # A pod that this machine cannot run fails again at once; it stays, with its message.
        failed=pod.status.get("phase") in ("Failed", "Succeeded") and "reason" not in pod.status,
        terminating=pod.deleting,
    )


def _worker(pod: PodRecord) -> Worker:
    return Worker(
        url=worker_address(pod),
        role=Role(pod.labels[LABEL_ROLE]),
        pairing=pod.labels[LABEL_FINGERPRINT],
        bootstrap_port=PORT_BOOTSTRAP,
    )
