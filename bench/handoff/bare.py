"""The bare library: one block per page as we do, and the two usual ways with one per layer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.handoff.receiver import BARE, RECEIVER
from bench.handoff.shapes import Plan
from bench.handoff.ways import Pair
from pdcluster_worker.core.ports import PageIds


class Bare:
    """What the ways share: posting a handle and polling it to its end."""

    block_first = False

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._agent: Any = pair.sender.bare
        self._shape = pair.sender.shape
        self._slabs = 2 * self._shape.geometry.layers
        self._slab_bytes = self._shape.geometry.page_bytes // self._slabs

    def measure(self, plan: Plan) -> float:
        return self._pair.receiver.time(BARE, lambda: self._send(plan))

    def _send(self, plan: Plan) -> None:
        handle = self._make(plan)
        self._agent.transfer(handle)
        while self._agent.check_xfer_state(handle) != "DONE":
            pass
        handle.release()

    def _make(self, plan: Plan) -> Any:
        raise NotImplementedError

    def _prepare(self, item_bytes: int, items: int) -> tuple[Any, Any]:
        def side(agent: str, address: int) -> Any:
            row = np.array([[address, item_bytes, 0, item_bytes, items]], dtype=np.uint64)
            return self._agent.prep_xfer_dlist(agent, row, "DRAM")

        return side("", self._pair.sender.address), side(RECEIVER, self._pair.receiver.address)


class BlockFirst(Bare):
    """A page of all layers is one item."""

    block_first = True

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self._lists = self._prepare(self._shape.geometry.page_bytes, self._shape.pool_pages)

    def _make(self, plan: Plan) -> Any:
        ours, theirs = self._lists
        return self._agent.make_prepped_xfer(
            "WRITE", ours, plan.source, theirs, plan.target, b"notice"
        )


class LayerMajor(Bare):
    """A page of one layer's keys or values is an item; prepared, strided, merged, numpy indices."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self._lists = self._prepare(self._slab_bytes, self._slabs * self._shape.pool_pages)
        starts = np.arange(self._slabs, dtype=np.int32) * self._shape.pool_pages
        self._starts: NDArray[np.int32] = starts.astype(np.int32)[:, None]

    def _make(self, plan: Plan) -> Any:
        ours, theirs = self._lists
        source, target = self._spread(plan.source), self._spread(plan.target)
        return self._agent.make_prepped_xfer("WRITE", ours, source, theirs, target, b"notice")

    def _spread(self, pages: PageIds) -> PageIds:
        return (self._starts + pages).reshape(-1)


class NaiveTuples(Bare):
    """The same items as Python tuples, described anew for each request."""

    def _make(self, plan: Plan) -> Any:
        agent = self._agent
        ours = self._tuples(self._pair.sender.address, plan.source.tolist())
        theirs = self._tuples(self._pair.receiver.address, plan.target.tolist())
        return agent.initialize_xfer(
            "WRITE",
            agent.get_xfer_descs(ours, "DRAM"),
            agent.get_xfer_descs(theirs, "DRAM"),
            RECEIVER,
            b"notice",
        )

    def _tuples(self, address: int, pages: list[int]) -> list[tuple[int, int, int]]:
        size = self._slab_bytes
        return [
            (address + (slab * self._shape.pool_pages + page) * size, size, 0)
            for slab in range(self._slabs)
            for page in pages
        ]
