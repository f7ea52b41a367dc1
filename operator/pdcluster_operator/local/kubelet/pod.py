"""The part of a Pod manifest that the local kubelet acts on.

What it does not know (node selectors, tolerations, resources ...) it ignores, as there is one
node; what it would have to fake it refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pdcluster_operator.errors import UnsupportedPod

GRACE_DEFAULT_S: Final = 30.0
CONTAINERS_MAX: Final = 32  # of one pod
_VOLUME_KINDS: Final = ("emptyDir", "secret", "hostPath")


class ProbeKind(StrEnum):
    """Which question a probe answers."""

    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """How and how often to ask. Exactly one of http, grpc, tcp, command is set."""

    http: tuple[int, str] | None = None  # port, path
    grpc: tuple[int, str] | None = None  # port, service
    tcp: int | None = None
    command: tuple[str, ...] | None = None
    initial_delay_s: float = 0.0
    period_s: float = 10.0
    timeout_s: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container. `sidecar` is an init container with restartPolicy Always."""

    name: str
    argv: tuple[str, ...]
    env: tuple[Mapping[str, Any], ...]
    mounts: tuple[tuple[str, str, str], ...]  # mount path, volume, sub path
    working_dir: str | None
    probes: Mapping[ProbeKind, ProbeSpec]
    pre_stop: tuple[str, ...] | None
    init: bool
    sidecar: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """One pod."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[ContainerSpec, ...]  # init containers first, in their order
    volumes: Mapping[str, Mapping[str, Any]]
    restart_policy: str
    grace_s: float


def parse_pod(manifest: Mapping[str, Any]) -> PodSpec:
    """Read a Pod manifest; raises `UnsupportedPod` for what cannot be honoured here."""
    try:
        return _parse(manifest)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # A pod template may put anything anywhere; an API server would have refused it.
        raise UnsupportedPod(f"not a Pod that Kubernetes would take: {error}") from error


def _parse(manifest: Mapping[str, Any]) -> PodSpec:
    metadata, spec = manifest["metadata"], manifest["spec"]
    inits = [_container(item, init=True) for item in spec.get("initContainers") or ()]
    mains = [_container(item, init=False) for item in spec.get("containers") or ()]
    name = str(metadata["name"])
    if not mains or len(inits) + len(mains) > CONTAINERS_MAX:
        raise UnsupportedPod(f"{name}: needs 1 to {CONTAINERS_MAX} containers")
    volumes = {str(item["name"]): item for item in spec.get("volumes") or ()}
    for volume, source in volumes.items():
        if not any(kind in source for kind in _VOLUME_KINDS):
            kinds = ", ".join(_VOLUME_KINDS)
            raise UnsupportedPod(f"{name}: volume {volume}: a local run knows {kinds} only")
    return PodSpec(
        name=name,
        namespace=str(metadata.get("namespace", "default")),
        uid=str(metadata["uid"]),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        containers=(*inits, *mains),
        volumes=volumes,
        restart_policy=str(spec.get("restartPolicy", "Always")),
        grace_s=float(spec.get("terminationGracePeriodSeconds", GRACE_DEFAULT_S)),
    )


def _container(item: Mapping[str, Any], *, init: bool) -> ContainerSpec:
    name = str(item["name"])
    argv = (*(item.get("command") or ()), *(item.get("args") or ()))
    if not item.get("command"):
        raise UnsupportedPod(
            f"container {name}: needs a command, there is no image to take it from"
        )
    named_ports = {str(p.get("name")): int(p["containerPort"]) for p in item.get("ports") or ()}
    probes = {
        kind: _probe(item[f"{kind.value}Probe"], named_ports)
        for kind in ProbeKind
        if item.get(f"{kind.value}Probe")
    }
    hook = ((item.get("lifecycle") or {}).get("preStop") or {}).get("exec") or {}
    return ContainerSpec(
        name=name,
        argv=tuple(map(str, argv)),
        env=tuple(item.get("env") or ()),
        mounts=tuple(
            (str(m["mountPath"]), str(m["name"]), str(m.get("subPath", "")))
            for m in item.get("volumeMounts") or ()
        ),
        working_dir=item.get("workingDir"),
        probes=probes,
        pre_stop=tuple(map(str, hook.get("command") or ())) or None,
        init=init,
        sidecar=init and item.get("restartPolicy") == "Always",
    )


def _probe(item: Mapping[str, Any], ports: Mapping[str, int]) -> ProbeSpec:
    def number(port: int | str) -> int:
        if isinstance(port, str) and port not in ports and not port.isdigit():
            raise UnsupportedPod(f"a probe asks port {port!r}, and the container names no such one")
        return ports[port] if isinstance(port, str) and port in ports else int(port)

    http, grpc, tcp = item.get("httpGet"), item.get("grpc"), item.get("tcpSocket")
    command = (item.get("exec") or {}).get("command")
    return ProbeSpec(
        http=(number(http["port"]), str(http.get("path", "/"))) if http else None,
        grpc=(number(grpc["port"]), str(grpc.get("service") or "")) if grpc else None,
        tcp=number(tcp["port"]) if tcp else None,
        command=tuple(map(str, command)) if command else None,
        initial_delay_s=float(item.get("initialDelaySeconds", 0)),
        period_s=float(item.get("periodSeconds", 10)),
        timeout_s=float(item.get("timeoutSeconds", 1)),
        success_threshold=int(item.get("successThreshold", 1)),
        failure_threshold=int(item.get("failureThreshold", 3)),
    )
