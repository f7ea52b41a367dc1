"""The engine: a model computed over the paged KV pool, asynchronously.

Interface: `core.ports.Engine`. Implementations register here by the ``model_type`` of a model
folder's config.json; the module is imported only when chosen, so importing this package costs no
torch. `pdcluster_worker.engine.scripted` is the double that tests and simulations use.

    shape = describe(folder, spec)            # milliseconds; enough to size the pool
    pool = torch.empty(pages, *geometry_of(shape, page_tokens=...).page_shape, dtype=...)
    engine = create_engine(folder, spec, pool=pool, clock=clock, wake=wake)
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.ports import Engine
from pdcluster_worker.engine.device import thread_env
from pdcluster_worker.engine.identity import describe
from pdcluster_worker.models.errors import UnsupportedModel
from pdcluster_worker.models.folder import CONFIG, read_json
from pdcluster_worker.models.progress import Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ENGINES", "create_engine", "describe", "thread_env"]

ENGINES = {
    "llama": "pdcluster_worker.engine.torch_engine:TorchEngine",
    "mistral": "pdcluster_worker.engine.torch_engine:TorchEngine",
}
"""``model_type`` -> ``module:class``."""


class _Factory(Protocol):
    def __call__(
        self,
        folder: Path,
        spec: EngineSpec,
        *,
        pool: "Tensor",
        clock: Clock,
        wake: Callable[[], None] | None,
        progress: Progress,
    ) -> Engine: ...


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
    kind = read_json(folder / CONFIG).get("model_type")
    if kind not in ENGINES:
        raise UnsupportedModel(f"model_type {kind!r}; supported are {sorted(ENGINES)}")
    module, _, name = ENGINES[kind].partition(":")
    factory = cast("_Factory", vars(import_module(module))[name])
    return factory(folder, spec, pool=pool, clock=clock, wake=wake, progress=progress)
