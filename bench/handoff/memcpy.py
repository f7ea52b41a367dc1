"""A plain copy of as many bytes inside one process: what the machine's memory allows."""

import ctypes
import time

from bench.handoff.shapes import Plan
from bench.handoff.ways import Pair
from pdcluster_worker.kv.pool import allocate_rows


class Memcpy:
    """Contiguous, into touched memory, with nobody told."""

    block_first = False

    def __init__(self, pair: Pair) -> None:
        self._bytes = pair.sender.shape.bytes
        self._source = pair.sender.address
        self._memory = allocate_rows(1, self._bytes)
        self._target = self._memory.region.address

    def measure(self, plan: Plan) -> float:
        del plan
        begin = time.monotonic_ns()
        ctypes.memmove(self._target, self._source, self._bytes)
        return (time.monotonic_ns() - begin) / 1e9
