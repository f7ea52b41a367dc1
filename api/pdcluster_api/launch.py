"""The launch specification: everything a worker process is told, in one JSON document.

The operator renders it into the environment variable ``PDCLUSTER_LAUNCH``; a person may write it to
a file. Field names are camelCase in JSON and snake_case here. Under each field: unit, default and
why that default. A bad value is refused at start, naming the key, the value and what is allowed.
"""

from dataclasses import dataclass
from dataclasses import field as nested

from pdcluster_api.names import (
    PORT_BOOTSTRAP,
    PORT_HEALTH,
    PORT_HTTP,
    PORT_PEER,
    PORT_SIDECAR,
    Role,
)
from pdcluster_api.schema import field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which model, and the name that clients use for it."""

    source: str = field(
        "A local folder with safetensors, a GGUF file, `package://NAME` for a model shipped in a "
        "Python package, or `tiny://llama?seed=0` for random weights made on the fly."
    )
    served_name: str = field("Name in /v1/models; empty means the last part of the source.", "")
    context_tokens_max: int = field(
        "Longest prompt plus answer, in tokens; 0 takes the model's own limit.", 0, minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """How the model is computed and how large its KV pool is."""

    device: str = field("`auto` is cuda when present.", "auto", choices=("auto", "cpu", "cuda"))
    dtype: str = field(
        "Weights and KV. `auto` is bfloat16 on cuda and on CPUs with bf16 units, else float32.",
        "auto",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    threads: int = field(
        "CPU threads of the model; 1 since the workers of a pod set share a machine.", 1, minimum=1
    )
    page_tokens: int = field("Tokens per KV page.", 16, minimum=1, maximum=1024)
    kv_pages: int = field(
        "Pages in the KV pool; 1024 pages of 16 tokens hold 16,384 tokens.", 1024, minimum=2
    )
    chunk_tokens: int = field(
        "Most prompt tokens computed in one forward pass; longer prompts are chunked.",
        512,
        minimum=1,
    )
    running_max: int = field("Most requests decoding at once.", 32, minimum=1, maximum=4096)
    host_pages: int = field(
        "Pages of host memory for requests pushed out of a full pool; as many as the default pool.",
        1024,
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSpec:
    """Ports on the pod's own address."""

    http: int = field("OpenAI and /generate.", PORT_HTTP, minimum=0, maximum=65535)
    bootstrap: int = field(
        "Bootstrap server of a prefill.", PORT_BOOTSTRAP, minimum=0, maximum=65535
    )
    peer: int = field("Control frames between workers.", PORT_PEER, minimum=0, maximum=65535)
    sidecar: int = field("gRPC control of the sidecar.", PORT_SIDECAR, minimum=0, maximum=65535)
    health: int = field("gRPC health of the sidecar.", PORT_HEALTH, minimum=0, maximum=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSpec:
    """How KV pages travel."""

    backend: str = field(
        "`loopback` serves one process only.", "nixl", choices=("nixl", "loopback")
    )
    reserved_decode_tokens: int = field(
        "Tokens kept free per active request so that running requests can grow (spec C, R).",
        128,
        minimum=0,
    )
    extra_slots: int = field(
        "Decode: requests beyond runningMax whose KV may arrive, or wait for a place in the batch. "
        "-1: twice runningMax where that is at most 32, else none.",
        -1,
        minimum=-1,
        maximum=8192,
    )
    metadata_rows: int = field(
        "Requests whose hand-off can be under way at once; one row is kept for warm-ups.",
        512,
        minimum=2,
        maximum=65536,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSpec:
    """Every wait, queue, message and retry of a worker has its limit here."""

    bootstrap_timeout_s: float = field(
        "Prefill: wait for a decode to publish pages for a room.", 60.0, minimum=0.1
    )
    handshake_timeout_s: float = field(
        "Decode: wait for the prefill's topology and the peer handshake.", 8.0, minimum=0.1
    )
    queue_timeout_s: float = field(
        "Either role: wait for memory, a slot or the engine.", 120.0, minimum=0.1
    )
    transfer_timeout_s: float = field(
        "From published pages to committed KV, and of one posted write.", 60.0, minimum=0.1
    )
    orphan_ttl_s: float = field(
        "Published pages whose request never came, and tombstones of refused rooms.",
        60.0,
        minimum=1.0,
    )
    heartbeat_interval_s: float = field("Ping between peers.", 1.0, minimum=0.05)
    heartbeat_timeout_s: float = field(
        "Silence after which a peer counts as lost; below the 10 s a client may wait.",
        5.0,
        minimum=0.2,
    )
    topology_interval_s: float = field(
        "Between topology fetches of one address.", 1.0, minimum=0.01
    )
    http_timeout_s: float = field("One rendezvous HTTP call.", 3.0, minimum=0.1)
    queued_requests_max: int = field(
        "Live requests a worker holds; more is a 503.", 1024, minimum=1
    )
    rooms_tracked_max: int = field("Orphan publishes and tombstones held.", 4096, minimum=16)
    quarantine_percent_max: int = field(
        "Share of KV pages or of metadata rows that may be in quarantine, because a writer that "
        "fell silent is not proven dead; past it the worker takes no new requests. 100: no limit.",
        50,
        minimum=1,
        maximum=100,
    )
    frame_bytes_max: int = field("One control frame.", 1 << 20, minimum=4096)
    send_queue_frames_max: int = field(
        "Frames waiting for one peer (ZMQ high-water mark).", 1000, minimum=1
    )
    request_bytes_max: int = field("One HTTP request body.", 8 << 20, minimum=1024)
    request_head_bytes_max: int = field(
        "Request line and headers of one HTTP request.", 64 << 10, minimum=1024
    )
    request_read_timeout_s: float = field(
        "From the first byte of an HTTP request to its last.", 60.0, minimum=0.1
    )
    loop_hang_s: float = field("No scheduler tick for this long: not live.", 10.0, minimum=0.5)
    compute_hang_s: float = field("One forward pass for this long: not live.", 300.0, minimum=1.0)
    drain_timeout_s: float = field(
        "SIGTERM: wait this long for accepted requests.", 30.0, minimum=0.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One worker."""

    role: Role = field("prefill, decode or aggregated.")
    cluster: str = field(
        "`namespace/name` of the PDCluster; frames of another are dropped.", "local"
    )
    model: ModelSpec = nested(default_factory=lambda: ModelSpec(source="tiny://llama?seed=0"))
    engine: EngineSpec = nested(default_factory=EngineSpec)
    ports: PortSpec = nested(default_factory=PortSpec)
    transfer: TransferSpec = nested(default_factory=TransferSpec)
    limits: LimitSpec = nested(default_factory=LimitSpec)
