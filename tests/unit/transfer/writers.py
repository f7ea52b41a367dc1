"""The writing side of a contract test: a transport, its memory and a clock that a test may move."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.ports import PageIds, Transport, WriteState
from pdcluster_worker.transfer import TransferOptions, create_transport
from pdcluster_worker.transfer.loopback import LoopbackNetwork
from tests.unit.transfer.receivers import (
    WAIT_S,
    Bytes,
    memory_bytes,
    regions_of,
    split_memory,
)

FAR_FUTURE_S = 3600.0


def ids(*items: int) -> PageIds:
    return np.array(items, dtype=np.int32)


class ShiftedClock(SystemClock):
    """The machine's clock plus what a test adds."""

    def __init__(self) -> None:
        self.shift_s = 0.0

    def now(self) -> float:
        return super().now() + self.shift_s


@dataclass
class Writer:
    transport: Transport
    clock: ShiftedClock
    memory: dict[str, Bytes]

    def post(
        self,
        agent: str,
        source: PageIds,
        target: PageIds,
        *,
        region: str = "kv",
        notice: bytes = b"notice",
        within_s: float = FAR_FUTURE_S,
    ) -> int:
        handle = self.transport.prepare(
            agent=agent,
            region=region,
            source=source,
            target=target,
            notice=notice,
        )
        self.transport.post(handle, deadline=self.clock.now() + within_s)
        return handle

    def finish(self, handle: int) -> None:
        """Poll to DONE."""
        until = self.clock.now() + WAIT_S
        while self.transport.poll(handle) is not WriteState.DONE:
            assert self.clock.now() < until
        assert self.transport.settled(handle)

    def settle(self, handle: int) -> None:
        """Ask until the source memory is quiescent."""
        until = self.clock.now() + WAIT_S
        while not self.transport.settled(handle):
            assert self.clock.now() < until

    def put(self, agent: str, source: Sequence[int], target: Sequence[int]) -> None:
        """Write pages and give the handle back."""
        handle = self.post(agent, ids(*source), ids(*target))
        self.finish(handle)
        self.transport.release(handle)


def make_writer(
    backend: str, network: LoopbackNetwork, *, post_bytes_max: int = 32 << 20
) -> Writer:
    memory = split_memory(np.zeros(memory_bytes(), dtype=np.uint8))
    rng = np.random.default_rng(7)
    for array in memory.values():
        array[:] = rng.integers(0, 256, size=array.shape, dtype=np.uint8)
    clock = ShiftedClock()
    transport = create_transport(
        backend,
        clock=clock,
        regions=regions_of(memory),
        options=TransferOptions(post_bytes_max=post_bytes_max),
        network=network,
    )
    return Writer(transport, clock, memory)
