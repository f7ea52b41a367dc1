"""One process of the pair: a touched pool, registered with the product and with a bare agent."""

from typing import Any

from nixl_cu12 import nixl_agent, nixl_agent_config

from bench.handoff.shapes import Shape
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.ports import TransferPeer
from pdcluster_worker.kv.pool import allocate_pool
from pdcluster_worker.transfer import create_transport
from pdcluster_worker.transfer.settings import backend_params


class Side:
    """Both agents register the same memory; only the one being measured is polled."""

    def __init__(self, shape: Shape, agent: str) -> None:
        self.shape = shape
        self.pool = allocate_pool(shape.geometry, pages=shape.pool_pages, device="cpu")
        self.address = self.pool.region.address
        self.clock = SystemClock()
        self.transport = create_transport("nixl", clock=self.clock, regions=(self.pool.region,))
        # The bare library with our settings, so that the difference is our code alone.
        config = nixl_agent_config(enable_prog_thread=False, backends=[], capture_telemetry=True)
        self.bare: Any = nixl_agent(agent, config)
        self.bare.create_backend("UCX", backend_params())
        size = shape.pool_pages * shape.geometry.page_bytes
        self._registered = self.bare.register_memory([(self.address, size, 0, "")], "DRAM")

    def introduction(self) -> tuple[TransferPeer, bytes, int]:
        """What the other side needs: product peer, bare metadata, pool address."""
        return self.transport.local(), self.bare.get_agent_metadata(), self.address

    def close(self) -> None:
        self.transport.close()
        self.bare.deregister_memory(self._registered)
        self.pool.close()
