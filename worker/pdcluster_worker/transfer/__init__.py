"""Transfer: one-sided writes of KV pages and metadata rows into the memory of another worker.

To add a backend: one file with a class that fulfils `core.ports.Transport` and is made from a
`TransportSetup`, and one line in `BACKENDS`. The contract tests are parametrised over that table.
A module is imported when chosen, so that a simulator needs no transfer library.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.ports import Region, Transport
from pdcluster_worker.transfer.base import TransferOptions, TransportSetup

if TYPE_CHECKING:
    from pdcluster_worker.transfer.loopback import LoopbackNetwork

__all__ = ["BACKENDS", "TransferOptions", "create_transport"]

BACKENDS = {
    "nixl": "pdcluster_worker.transfer.nixl:NixlTransport",
    "loopback": "pdcluster_worker.transfer.loopback:LoopbackTransport",
}


def create_transport(
    backend: str,
    *,
    clock: Clock,
    regions: Sequence[Region],
    options: TransferOptions | None = None,
    network: "LoopbackNetwork | None" = None,
) -> Transport:
    """A transport of a fresh agent, with ``regions`` registered; they must outlive its `close`.

    ``network`` is where loopback agents of one process meet; other backends ignore it. Raises
    ValueError for an unknown backend and TransferError if the memory cannot be registered.
    """
    if backend not in BACKENDS:
        raise ValueError(f"transfer backend {backend!r}: allowed are {sorted(BACKENDS)}")
    module, _, name = BACKENDS[backend].partition(":")
    create = cast("Callable[[TransportSetup], Transport]", vars(import_module(module))[name])
    return create(
        TransportSetup(
            clock=clock, regions=regions, options=options or TransferOptions(), network=network
        )
    )
