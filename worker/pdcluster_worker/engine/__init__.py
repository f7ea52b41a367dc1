"""The engine: a model computed over the paged KV pool, asynchronously.

Interface: `core.ports.Engine`. `support` decides from a model folder's config.json which of the
`runners` computes it; modules are imported only when chosen, so importing this package costs no
torch. `pdcluster_worker.engine.scripted` is the double that tests and simulations use.

    shape = describe(folder, spec)            # milliseconds; enough to size the pool
    pool = torch.empty(pages, *geometry_of(shape, page_tokens=...).page_shape, dtype=...)
    engine = create_engine(folder, spec, pool=pool, clock=clock, wake=wake)
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.ports import Engine
from pdcluster_worker.engine.device import thread_env
from pdcluster_worker.engine.identity import describe
from pdcluster_worker.models.progress import Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["create_engine", "describe", "thread_env"]


def create_engine(
    folder: Path,
    spec: EngineSpec,
    *,
    pool: "Tensor",
    clock: Clock,
    wake: Callable[[], None] | None = None,
    progress: Progress = silent,
) -> Engine:
    """Load ``folder``'s weights and start the engine's thread; blocks for seconds.

    ``pool`` is contiguous ``[pages, *KVGeometry.page_shape]`` of the shape's dtype on the engine's
    device, finite everywhere (zeroed when made: hidden rows count with weight 0, and 0 times NaN is
    NaN). It stays the caller's and must outlive the engine. ``wake`` is called from the engine's
    thread when a pass has ended. Raises ModelError, UnsupportedModel, ValueError (pool).
    """
    from pdcluster_worker.engine.torch_engine import TorchEngine

    return TorchEngine(folder, spec, pool=pool, clock=clock, wake=wake, progress=progress)
