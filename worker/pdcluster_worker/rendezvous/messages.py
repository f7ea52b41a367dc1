"""Plain requests and answers of the rendezvous, as both ends see them.

A prefill scheduler registers one `Row` per rank. A decode scheduler asks for the `Topology` of a
bootstrap address and learns from its rows which control sockets to greet.
"""

from typing import Annotated, Final

import msgspec

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.core.ports import Contact

Address = tuple[
    str, int
]  # (host, port), compared exactly: "host:80" is not a prefix of "host:8000"

TEXT_CHARS_MAX: Final = 256
RANKS_MAX: Final = 4096  # product of all sizes
ROOMS_PER_QUERY_MAX: Final = 4096

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
Size = Annotated[int, msgspec.Meta(ge=1, le=RANKS_MAX)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANKS_MAX)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Room = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]

# Of GET /route, in the order of RowKey; all -1 asks for the topology.
RANK_PARAMETERS: Final = (
    "prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank",
)  # fmt: skip

RowKey = tuple[int, int, int, int]  # (dp, cp, tp, pp) ranks


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one prefill rank says of itself. Unknown fields are ignored: later versions add some."""

    instance: Text  # of this process; a new one behind the same address is a restart
    pod_uid: Text
    peer_host: Text  # its control socket
    peer_port: Port
    fingerprint: Text  # of the KV geometry
    page_size: Size  # tokens
    kv_cache_dtype: Text
    attn_tp_size: Size = 1
    attn_tp_rank: Rank = 0
    attn_cp_size: Size = 1
    attn_cp_rank: Rank = 0
    attn_dp_size: Size = 1
    attn_dp_rank: Rank = 0
    pp_size: Size = 1
    pp_rank: Rank = 0
    system_dp_size: Size = 1
    system_dp_rank: Rank = 0
    load_balance_method: Text = "follow_bootstrap_room"
    prefill_http_port: Port | None = None

    @property
    def dp_size(self) -> int:
        """Data-parallel schedulers of the worker, however they are arranged."""
        return self.attn_dp_size if self.system_dp_size == 1 else self.system_dp_size

    @property
    def dp_rank(self) -> int:
        """This rank among `dp_size`."""
        return self.attn_dp_rank if self.system_dp_size == 1 else self.system_dp_rank

    @property
    def key(self) -> RowKey:
        """Place of the rank; a later row of the same key replaces this one."""
        return (self.dp_rank, self.attn_cp_rank, self.attn_tp_rank, self.pp_rank)

    @property
    def ranks(self) -> int:
        """How many rows make the worker complete."""
        return self.dp_size * self.attn_cp_size * self.attn_tp_size * self.pp_size

    def contact(self) -> Contact:
        """Where and who the scheduler is."""
        return Contact(
            instance=self.instance,
            pod_uid=self.pod_uid,
            host=self.peer_host,
            port=self.peer_port,
            fingerprint=self.fingerprint,
        )


# What every rank of one worker must agree on; a registrant that differs is refused.
SHARED_FIELDS: Final = (
    "attn_tp_size", "attn_cp_size", "attn_dp_size", "pp_size", "system_dp_size", "page_size",
    "kv_cache_dtype", "fingerprint", "load_balance_method", "prefill_http_port",
)  # fmt: skip


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A complete worker: its sizes and all its rows."""

    attn_tp_size: Size
    attn_cp_size: Size
    dp_size: Size
    pp_size: Size
    page_size: Size
    kv_cache_dtype: Text
    follow_bootstrap_room: bool
    fingerprint: Text
    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=RANKS_MAX)]
    prefill_http_port: Port | None = None

    def contact(self, *, dp_rank: int = 0) -> Contact:
        """The scheduler that owns the queues of one data-parallel rank: its rank 0."""
        for row in self.rows:
            if row.key == (dp_rank, 0, 0, 0):
                return row.contact()
        raise WireError(f"topology has no row for data-parallel rank {dp_rank}")


class RegisterRank(msgspec.Struct, frozen=True, kw_only=True):
    """POST /register_dp_rank: which data-parallel rank of prefill took a room."""

    bootstrap_room: Room
    dp_rank: Rank


class QueryRanks(msgspec.Struct, frozen=True, kw_only=True):
    """POST /query_dp_ranks."""

    bootstrap_rooms: Annotated[tuple[Room, ...], msgspec.Meta(max_length=ROOMS_PER_QUERY_MAX)]


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the client: PUT one row, retried until it is in or refused."""

    address: Address
    row: Row


class FetchTopology(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the client: one GET, not retried; the caller has its own interval."""

    address: Address


Call = Register | FetchTopology


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended. Exactly one of ``topology`` and ``error`` for FetchTopology."""

    id: int
    call: Call
    topology: Topology | None = None
    error: Exception | None = None  # a WorkerError, see `client`
