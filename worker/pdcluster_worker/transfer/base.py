"""What every transfer backend shares: limits, options and the refusal of impossible arguments.

The contract itself is `core.ports.Transport`. The checks stand here and not in a library, because
an index outside of a peer's region would silently overwrite memory of a live process.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import TransferInvalid, WorkerError
from pdcluster_worker.core.ports import PageIds, Region, TransferPeer

if TYPE_CHECKING:
    from pdcluster_worker.transfer.loopback import LoopbackNetwork

NOTICE_BYTES_MAX = 512
POST_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOptions:
    """Settings of a transport; every backend takes the same ones."""

    post_bytes_max: int = 32 << 20
    """Bytes of host memory handed to the library in one call; default 32 MiB. Between processes of
    one host the library copies inside that call, so this bounds how long one tick can take (3-5 ms
    at the default). Larger writes go in several posts behind one handle, one per poll."""

    ucx: Mapping[str, str] = field(default_factory=dict)
    """The ``UCX_*`` variables of the process environment, as its one settings module read them. UCX
    reads them itself; here they only keep our own defaults from contradicting them."""

    def __post_init__(self) -> None:
        """Refuse an impossible limit."""
        if self.post_bytes_max < POST_BYTES_MIN:
            raise ValueError(
                f"post_bytes_max {self.post_bytes_max}: allowed is {POST_BYTES_MIN} or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSetup:
    """What a backend is made from."""

    clock: Clock
    regions: Sequence[Region]  # their memory must outlive the transport
    options: TransferOptions = field(default_factory=TransferOptions)
    network: "LoopbackNetwork | None" = None  # where loopback agents of one process meet


@dataclass(slots=True)
class KnownPeer:
    """A peer as it told us, and those of its regions that we share, by name."""

    told: TransferPeer
    regions: dict[str, Region]

    def region(self, name: str) -> Region:
        """The peer's region. Raises TransferInvalid if we share none of that name."""
        found = self.regions.get(name)
        if found is None:
            raise TransferInvalid(f"peer {self.told.agent!r} and we share no region {name!r}")
        return found


def already_known(known: KnownPeer | None, peer: TransferPeer) -> bool:
    """Whether adding ``peer`` is a no-op. Raises TransferInvalid if its agent told otherwise.

    An agent name is unique per incarnation; so that would be another process under a used name.
    """
    if known is not None and known.told != peer:
        raise TransferInvalid(f"peer {peer.agent!r} is known with other metadata")
    return known is not None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a write failed; raised anew at every poll, so that tracebacks do not pile up."""

    kind: type[WorkerError]
    message: str

    def error(self) -> WorkerError:
        """A fresh exception."""
        return self.kind(self.message)


def by_name(regions: Iterable[Region]) -> dict[str, Region]:
    """Regions by their name. Raises TransferInvalid for an impossible or repeated one."""
    found: dict[str, Region] = {}
    for region in regions:
        if region.name in found:
            raise TransferInvalid(f"region {region.name!r} appears twice")
        if min(region.address, region.item_bytes, region.items) < 1:
            raise TransferInvalid(f"region {region.name!r} has no memory: {region}")
        if region.address + region.item_bytes * region.items > 1 << 64 or region.items > 1 << 31:
            raise TransferInvalid(f"region {region.name!r} exceeds the address space: {region}")
        if region.kind not in ("DRAM", "VRAM"):
            raise TransferInvalid(f"region {region.name!r} is of unknown kind {region.kind!r}")
        found[region.name] = region
    return found


def shared_regions(ours: Mapping[str, Region], peer: TransferPeer) -> dict[str, Region]:
    """The peer's regions that we have too, by name.

    Raises TransferInvalid if the items of one differ in size: an index would mean another address
    on each side.
    """
    theirs = by_name(peer.regions)
    for name in ours.keys() & theirs.keys():
        if ours[name].item_bytes != theirs[name].item_bytes:
            raise TransferInvalid(
                f"region {name!r} of peer {peer.agent!r} has items of {theirs[name].item_bytes} "
                f"bytes, ours have {ours[name].item_bytes}"
            )
    return {name: region for name, region in theirs.items() if name in ours}


def check_write(
    *, source: PageIds, ours: Region, target: PageIds, theirs: Region, notice: bytes
) -> None:
    """Refuse a write before anything is posted.

    Raises TransferInvalid for index lists that are no equal-length int32 vectors or that leave
    their regions, and for a notice too long for one library message.
    """
    if len(notice) > NOTICE_BYTES_MAX:
        raise TransferInvalid(f"notice of {len(notice)} bytes; at most {NOTICE_BYTES_MAX}")
    if source.shape != target.shape or source.ndim != 1 or source.size == 0:
        raise TransferInvalid(
            f"source {source.shape} and target {target.shape} must be vectors of equal length >= 1"
        )
    _check_range(source, ours, side="source")
    _check_range(target, theirs, side="target")


def _check_range(items: PageIds, region: Region, *, side: str) -> None:
    if items.dtype != np.int32:
        raise TransferInvalid(f"{side} indices are {items.dtype}, not int32")
    # As unsigned a negative index is huge, so that one pass finds both kinds of outsider.
    if int(items.view(np.uint32).max()) >= region.items:
        raise TransferInvalid(
            f"{side} indices {items.min()}..{items.max()} leave region {region.name!r} "
            f"of {region.items} items"
        )


def descriptor_row(region: Region) -> NDArray[np.uint64]:
    """``[[address, item bytes, device, stride bytes, items]]``: all items of a region, [1, 5].

    The library turns index ``i`` into ``address + i * stride``; so does the loopback backend.
    """
    stride = region.item_bytes
    return np.array(
        [[region.address, region.item_bytes, region.device, stride, region.items]], dtype=np.uint64
    )
