"""Messages inside one pod, over ZMQ ipc: frontend -> scheduler, scheduler -> frontend, status.

    frontend  PUSH --requests.sock-->  PULL  scheduler     Submit, Abort, Decline
    frontend  PULL <--outputs.sock---  PUSH  scheduler     Ready, Tokens, Failed
    anyone    REQ  <--status.sock--->  ROUTER scheduler    Ask -> Status | MetricsText

One message is one msgpack frame of one of the tagged structs below. A socket end that reads
something else drops and counts it.
"""

from typing import Final

import msgspec

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import ClientGone

# The bootstrap host of a health probe: one token, computed here, without a peer.
FAKE_HOST: Final = "2.2.2.2"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen. Stop *strings* live in the frontend, which owns the tokenizer."""

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # (0, 1]
    top_k: int = -1  # -1 is all
    min_p: float = 0.0  # [0, 1]
    seed: int | None = None  # None: drawn by the frontend; equal seeds give equal text
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None  # None: none; 0: of the chosen token only; k <= 128: top k too
    presence_penalty: float = 0.0  # taken off a token's logit once it is in the answer
    frequency_penalty: float = 0.0  # the same, for each time that it is there
    repetition_penalty: float = 1.0  # > 0; divides logits > 0 of seen tokens, multiplies others
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, added to its logit)
    # Logprobs of the prompt's tokens behind this position, as many of the best as ``logprobs``
    # says; None: none. Where the prompt is not computed it means nothing.
    input_logprobs_from: int | None = None

    @property
    def penalised(self) -> bool:
        """True when what was said before changes what comes next."""
        penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty - 1.0)
        return any(penalties)


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the other leg is: the ``bootstrap_*`` fields of the request."""

    host: str
    port: int
    room: int  # 1 .. 2**63-1


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A tokenized request."""

    rid: str  # unique among the live requests of this worker
    input_ids: bytes  # int32, little endian
    sampling: Sampling
    hop: Hop | None = None  # None only for aggregated
    received_s: float = 0.0  # monotonic seconds at HTTP arrival


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End a request. ``finished`` means that the frontend saw a stop string: not a failure."""

    rid: str
    reason: str
    kind: str = ClientGone.kind  # of `core.errors`; the other leg is told
    finished: bool = False


class Decline(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The frontend refused a request of this room itself; the other leg must not wait for it."""

    hop: Hop
    kind: str  # of `core.errors`
    message: str


class TopLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One alternative at a position."""

    token: int
    logprob: float


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """New tokens of one request, in order; the last message of a request has ``finish``."""

    rid: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()  # one per id when asked for
    top: tuple[tuple[TopLogprob, ...], ...] = ()  # one row per id when asked for
    finish: str | None = None  # "stop" | "length"
    matched_token: int | None = None  # the stop token, for finish == "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    handoff: "Handoff | None" = None  # decode, with the finish
    # Of the prompt, with the first token, when asked for.
    input_logprobs: tuple[float, ...] = ()
    input_top: tuple[tuple[TopLogprob, ...], ...] = ()


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """What moving one request's KV cost; shown by the demo and summed in metrics."""

    pages: int
    bytes: int  # KV pages and the metadata row
    chunks: int
    # Both are prefill's to tell; decode answers without them (None) when its word is still on the
    # way. Descriptors are counted as posted to the transfer library, after merging runs; seconds
    # go from the first write posted to the last one done.
    descriptors: int | None
    seconds: float | None
    total_seconds: float  # pages published -> committed, measured by decode


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request ended with an error of `core.errors`."""

    rid: str
    kind: str
    message: str
    field: str | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sent once, when the model is loaded and the pools are touched."""

    instance: str  # uuid of this scheduler process
    capacity_tokens: int  # longest prompt + answer
    vocab: int
    eos_token_ids: tuple[int, ...]


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A question on the status socket."""

    what: str = "status"  # "status" | "metrics"


class PoolUse(msgspec.Struct, frozen=True, kw_only=True):
    """Where the units of a pool are; free + held + quarantined = total, always."""

    total: int
    free: int
    held: int
    quarantined: int


class Status(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The scheduler's own truth, made when asked."""

    instance: str
    role: str
    cluster: str
    fingerprint: str  # of the KV geometry and the metadata schema
    draining: bool
    uptime_s: float
    ticks: int
    tick_max_ms: float  # slowest tick of the last minute
    computing_s: float  # age of the forward pass now running; 0 when idle
    stages: dict[Stage, int]  # live requests by stage
    pages: PoolUse
    rows: PoolUse
    peers: dict[str, str]  # instance -> state
    requests_done: int
    requests_failed: int
    prompt_tokens: int
    output_tokens: int
    handoff_bytes: int
    handoff_seconds: float
    handoffs: int
    last_errors: tuple[str, ...] = ()
    refusing: str = ""  # why new requests are refused; empty while they are taken


class MetricsText(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The scheduler's metrics in Prometheus text format."""

    text: bytes


ToScheduler = Submit | Abort | Decline
ToFrontend = Ready | Tokens | Failed
Answer = Status | MetricsText
