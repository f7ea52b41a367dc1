"""What a person writes: one PDCluster is a model, two pools, a router and limits.

These dataclasses are the single source of the CustomResourceDefinition, its defaults and its
documentation. Field names are camelCase in the document.
"""

from dataclasses import dataclass, replace
from dataclasses import field as nested
from typing import Any, Final

from pdcluster_api.launch import EngineSpec, LimitSpec, ModelSpec, TransferSpec
from pdcluster_api.names import ROLE_ROUTER, Role
from pdcluster_api.schema import field

KIND: Final = "PDCluster"
NAME_PATTERN: Final = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"  # leaves room for `-prefill-1234`
REPLICAS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """Merged over the pod that pdcluster renders, as a strategic merge would: maps by key,
    containers, volumes, mounts and environment by name; a null removes what is rendered. Use it
    for node selectors, tolerations, extra volumes and the like. The worker's container is called
    `worker`, the router's `router`."""

    metadata: dict[str, Any] = field("Labels and annotations of the pod.", factory=dict)
    spec: dict[str, Any] = field("Any part of a Kubernetes pod spec.", factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Kubernetes resources of the main container."""

    requests: dict[str, Any] = field("What the scheduler reserves.", factory=dict)
    limits: dict[str, Any] = field("What the container may use at most.", factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The part of the object's metadata that decisions look at."""

    name: str = field("Name of the cluster; pods are called after it.", pattern=NAME_PATTERN)
    namespace: str = field("Namespace.", "default", pattern=r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
    labels: dict[str, str] = field("Labels.", factory=dict)
    annotations: dict[str, str] = field("Annotations.", factory=dict)
    uid: str = field("Set by the API server.", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOverrides:
    """Engine settings of one pool; what is left out comes from `spec.engine`.

    Data type and page size are missing on purpose: they are part of the KV layout, and both pools
    must agree on it.
    """

    device: str | None = field("See spec.engine.device.", None, choices=("auto", "cpu", "cuda"))
    threads: int | None = field("See spec.engine.threads.", None, minimum=1)
    kv_pages: int | None = field("See spec.engine.kvPages.", None, minimum=2)
    chunk_tokens: int | None = field("See spec.engine.chunkTokens.", None, minimum=1)
    running_max: int | None = field("See spec.engine.runningMax.", None, minimum=1, maximum=4096)

    def over(self, engine: EngineSpec) -> EngineSpec:
        """Return `engine` with the settings given here."""
        given = {
            "device": self.device,
            "threads": self.threads,
            "kv_pages": self.kv_pages,
            "chunk_tokens": self.chunk_tokens,
            "running_max": self.running_max,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return replace(engine, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """The workers of one role."""

    replicas: int = field(
        "Worker groups; 0 switches the pool off.", 1, minimum=0, maximum=REPLICAS_MAX
    )
    engine: EngineOverrides = field("Engine settings of this pool.", factory=EngineOverrides)
    resources: Resources = nested(default_factory=Resources)
    pod_template: PodTemplate = nested(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    """The stock router in front of the workers, with our registrar beside it."""

    replicas: int = field("Routers; each one knows every worker.", 1, minimum=0, maximum=8)
    image: str = field("Image with the router and the registrar.", "pdcluster-operator:0.1.0")
    policy: str = field(
        "How the router picks a worker of a pool; cache_aware sends equal prefixes to one worker.",
        "cache_aware",
        choices=("random", "round_robin", "cache_aware", "power_of_two", "least_load"),
    )
    extra_args: tuple[str, ...] = field("Passed to the router at the end of its command line.", ())
    resources: Resources = nested(default_factory=Resources)
    pod_template: PodTemplate = nested(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """How a worker is taken away."""

    timeout_seconds: float = field(
        "Seconds that accepted requests and pending transfers get before a worker ends anyway.",
        30.0,
        minimum=0.0,
        maximum=86400.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PDClusterSpec:
    """A model served with prefill and decode apart."""

    model: ModelSpec = field("Which model, and the name that clients use for it.")
    image: str = field(
        "Image of the workers; a local run does not use it.", "pdcluster-worker:0.1.0"
    )
    engine: EngineSpec = field("How the model is computed, in both pools.", factory=EngineSpec)
    prefill: PoolSpec = field("Workers that compute prompts.", factory=PoolSpec)
    decode: PoolSpec = field("Workers that generate.", factory=PoolSpec)
    router: RouterSpec = field("The router in front.", factory=RouterSpec)
    transfer: TransferSpec = field("How KV pages travel.", factory=TransferSpec)
    limits: LimitSpec = field("Limits of every worker.", factory=LimitSpec)
    drain: DrainSpec = field("How workers are taken away.", factory=DrainSpec)

    def replicas(self) -> dict[str, int]:
        """Return the wanted groups by role."""
        return {
            Role.PREFILL.value: self.prefill.replicas,
            Role.DECODE.value: self.decode.replicas,
            ROLE_ROUTER: self.router.replicas,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PDCluster:
    """One cluster: its identity and what is wanted."""

    metadata: Metadata
    spec: PDClusterSpec

    @property
    def key(self) -> str:
        """`namespace/name`, the cluster id in every frame between workers."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
