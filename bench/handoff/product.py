"""The product: `prepare` and `post`, polled to its end, released."""

from bench.handoff.receiver import PRODUCT
from bench.handoff.shapes import Plan
from bench.handoff.ways import Pair
from pdcluster_worker.core.ports import WriteState

DEADLINE_S = 60.0


class Product:
    """With every check, the deadline and the split of large writes."""

    block_first = True

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._clock = pair.sender.clock
        self._transport = pair.sender.transport
        self._peer = pair.receiver.peer.agent
        self._transport.add_peer(pair.receiver.peer)

    def measure(self, plan: Plan) -> float:
        return self._pair.receiver.time(PRODUCT, lambda: self._send(plan))

    def _send(self, plan: Plan) -> None:
        transport = self._transport
        handle = transport.prepare(
            agent=self._peer,
            region="kv",
            source=plan.source,
            target=plan.target,
            notice=b"notice",
        )
        transport.post(handle, deadline=self._clock.now() + DEADLINE_S)
        while transport.poll(handle) is not WriteState.DONE:
            pass
        transport.release(handle)
