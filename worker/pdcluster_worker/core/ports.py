"""What pure code and roles know of the world: Protocols and the plain data that crosses them.

Nothing here imports torch, zmq, nixl or a clock, so the pipeline runs under a virtual clock in the
simulator with other implementations behind the same Protocols.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PageIds = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCount:
    """Units of a pool by place; ``free + held + quarantined == total`` always."""

    total: int
    free: int
    held: int
    quarantined: int

    def __post_init__(self) -> None:
        """Refuse counts that do not add up."""
        if self.free + self.held + self.quarantined != self.total:
            raise ValueError(f"pool counts do not add up: {self}")


# --------------------------------------------------------------------------------------- engine
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the KV pool and the pipeline need to know of a model. All counts, no units hidden."""

    layers: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int  # the model's own limit
    eos_token_ids: tuple[int, ...]
    dtype: str  # "float32" | "bfloat16" | "float16", of weights and KV
    identity: str  # hash of the weights' identity (source, revision, shape); equal means same KV


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleParams:
    """How one token is chosen. ``temperature == 0`` is greedy and ignores the rest."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    seed: int = 0  # with the position, the whole source of randomness: batch-independent
    logprobs: int | None = None  # None | 0..128
    banned: tuple[int, ...] = ()  # tokens that must not be chosen (min_new_tokens: eos)
    # Added to logits, greedy or not, before anything else is done with them.
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, bias)
    # The same, from the tokens of ``output``: once per token that is there, and per occurrence.
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # Of each token in ``prompt`` or ``output`` a logit > 0 is divided by it, another multiplied.
    repetition_penalty: float = 1.0
    prompt: NDArray[np.int64] | None = field(default=None, compare=False)  # only with penalties
    output: tuple[int, ...] = ()  # only with penalties


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Prompt tokens whose log-probability is asked for (F18).

    ``targets[i]`` is the token that follows the step's row ``row + i``; the last target may be the
    first token of the next chunk. As all log-probabilities: of the model's own distribution.
    """

    row: int  # >= 0; row + len(targets) <= the step's tokens
    targets: NDArray[np.int64]  # [n], n >= 1
    top: int = 0  # the k best at each place, 0..128


@dataclass(frozen=True, slots=True)
class Score:
    """Of one prompt token."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), best first


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStep:
    """One sequence's share of a forward pass.

    Tokens ``tokens`` sit at positions ``start .. start+len(tokens)-1``; KV rows below ``start`` are
    present. ``pages`` covers at least ``start + len(tokens)`` positions. The step writes the KV
    rows of its tokens and, when ``sample`` is given, chooses the token after the last one.
    """

    key: int
    tokens: NDArray[np.int64]  # [n], n >= 1
    start: int
    pages: PageIds  # [ceil((start+n)/page_tokens)] or longer
    sample: SampleParams | None
    scoring: Scoring | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome for one `SequenceStep`; ``token`` is None when none was asked for."""

    key: int
    token: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), best first
    scores: tuple[Score, ...] = ()  # one for each of the step's scoring targets


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """All results of one launched batch, in the batch's order, or what went wrong."""

    results: tuple[StepResult, ...]
    seconds: float
    error: str | None = None  # the forward raised; no result is valid


class Engine(Protocol):
    """The model, asynchronous. One batch at a time; nothing here blocks on compute."""

    shape: ModelShape

    def launch(self, batch: Sequence[SequenceStep]) -> None:
        """Start a forward pass. Raises RuntimeError if one is still running."""
        ...

    def poll(self) -> BatchResult | None:
        """The finished pass, once; None while it runs or when none was launched."""
        ...

    def busy_since(self) -> float | None:
        """Clock time at which the running pass started; None when idle."""
        ...

    def close(self) -> None:
        """Wait for the running pass, then free everything."""
        ...


# ------------------------------------------------------------------------------------- transfer
@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Registered memory made of equal items; item ``i`` is at ``address + i * item_bytes``."""

    name: str  # "kv" | "meta"
    address: int
    item_bytes: int
    items: int
    kind: str = "DRAM"  # "DRAM" | "VRAM"
    device: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPeer:
    """What a peer sends so that we can write into its regions."""

    agent: str  # unique per incarnation
    metadata: bytes  # opaque to everybody but the backend
    regions: tuple[Region, ...]


class WriteState(Enum):
    """Of one posted write."""

    PENDING = "pending"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStats:
    """What one settled write cost."""

    bytes: int
    descriptors: int  # after merging contiguous runs
    seconds: float  # posted -> seen done


class Transport(Protocol):
    """One-sided writes into peers' registered memory, with a notice carried by the write.

    All methods are called from the scheduler's thread only and none waits for a peer. Errors are of
    `core.errors.TransferError` or TransferTimeout; nothing else escapes.
    """

    name: str

    def local(self) -> TransferPeer:
        """What to send to peers."""
        ...

    def add_peer(self, peer: TransferPeer) -> None:
        """Learn a peer and prepare its lists once. Adding the same agent again is a no-op."""
        ...

    def remove_peer(self, agent: str) -> None:
        """Forget a peer. Unknown agents are ignored. Its handles must be released before."""
        ...

    def prepare(
        self, *, agent: str, region: str, source: PageIds, target: PageIds, notice: bytes
    ) -> int:
        """Make a write of items ``source`` of our region into items ``target`` of the peer's.

        Nothing moves before `post`; returns a handle. Contiguous runs are merged. ``notice`` (<=
        512 bytes) is delivered to the peer after the data, once this side polls the handle to
        DONE. ``source`` and ``target`` have equal length >= 1.
        """
        ...

    def post(self, handle: int, *, deadline: float) -> None:
        """Start a prepared write, once. Past ``deadline`` (clock seconds) `poll` raises."""
        ...

    def poll(self, handle: int) -> WriteState:
        """Progress and state. Raises TransferError, TransferPeerLost or TransferTimeout."""
        ...

    def settled(self, handle: int) -> bool:
        """True when the library will certainly not touch our memory for this handle any more.

        A write that timed out is not settled until the library says so: its source stays pinned.
        """
        ...

    def stats(self, handle: int) -> WriteStats:
        """Of a DONE handle, before release."""
        ...

    def release(self, handle: int) -> None:
        """Give the handle back. Releasing twice is safe and does nothing."""
        ...

    def notices(self) -> list[tuple[str, bytes]]:
        """Drain what peers delivered: (agent, notice), in arrival order per agent. Never blocks."""
        ...

    def close(self) -> None:
        """Release handles, forget peers, deregister. Idempotent."""
        ...


# ------------------------------------------------------------------------------------ memory
@dataclass(frozen=True, slots=True, kw_only=True)
class RowContent:
    """One metadata row: what decode needs besides the KV (spec B.4)."""

    room: int
    generation: int
    token: int  # the first token
    prompt_tokens: int
    cached_tokens: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]  # (token, logprob), best first, at most 128


class RowStore(Protocol):
    """Our own metadata rows, host memory."""

    def write(self, row: int, content: RowContent) -> None:
        """Fill a row before it is sent."""
        ...

    def read(self, row: int) -> RowContent:
        """Decode a row that a peer has written."""
        ...

    def clear(self, row: int) -> None:
        """Zero room and generation, *before* the row is published or freed (E5)."""
        ...


class PageStore(Protocol):
    """Copies of pages in host memory, for retracted requests."""

    def save(self, pages: PageIds) -> int | None:
        """Copy pages out; a ticket, or None when the host limit is reached."""
        ...

    def load(self, ticket: int, pages: PageIds) -> None:
        """Copy them back into as many ``pages``; the ticket is used up."""
        ...

    def drop(self, ticket: int) -> None:
        """Forget a copy. Unknown tickets are ignored."""
        ...


# --------------------------------------------------------------------------------- rendezvous
@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What a bootstrap server says of the prefill scheduler behind it."""

    instance: str
    pod_uid: str
    host: str  # its control socket
    port: int
    fingerprint: str
