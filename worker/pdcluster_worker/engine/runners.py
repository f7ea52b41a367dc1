"""The codes that compute models: one line each, imported only when chosen.

A runner's ``load(folder, dtype=..., pool=..., progress=...)`` blocks for seconds and returns a
`Model`. Which runner a folder gets is `support.decide`'s.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from pdcluster_worker.engine.config import LlamaConfig, read_config
from pdcluster_worker.engine.fallback_config import FallbackConfig, read_fallback
from pdcluster_worker.engine.support import Runner, decide
from pdcluster_worker.models.errors import UnsupportedModel
from pdcluster_worker.models.folder import CONFIG, read_json
from pdcluster_worker.models.progress import Progress

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pdcluster_worker.engine.batch import Layout

RUNNERS = {
    Runner.LLAMA: "pdcluster_worker.engine.llama:load",
    Runner.TRANSFORMERS: "pdcluster_worker.engine.fallback:load",
}
"""Runner -> ``module:function``."""


class Model(Protocol):
    """A forward pass over the pool that it was loaded with. Runs under `torch.inference_mode`."""

    def forward(self, layout: "Layout") -> "Tensor | None":
        """Final states ``[n, hidden]`` of ``layout.read_rows``; None when nothing is read.

        More rows may follow them that mean nothing. Writes the KV rows of every token of the batch.
        """
        ...

    def logits(self, hidden: "Tensor") -> "Tensor":
        """Float32 ``[n, vocab]`` after states ``[n, hidden]`` of `forward`."""
        ...


class _Load(Protocol):
    def __call__(
        self, folder: Path, *, dtype: "torch.dtype", pool: "Tensor", progress: Progress
    ) -> Model: ...


def runner_of(folder: Path) -> Runner:
    """Of a model folder; UnsupportedModel tells why there is none."""
    decision = decide(read_json(folder / CONFIG))
    if decision.runner is None:
        raise UnsupportedModel(decision.reason)
    return decision.runner


def read_numbers(folder: Path) -> LlamaConfig | FallbackConfig:
    """What its runner needs to know. Raises ModelError or UnsupportedModel."""
    return read_config(folder) if runner_of(folder) is Runner.LLAMA else read_fallback(folder)


def load_model(folder: Path, *, dtype: "torch.dtype", pool: "Tensor", progress: Progress) -> Model:
    """Weights into memory, on the pool's device. Raises ModelError or UnsupportedModel."""
    module, _, name = RUNNERS[runner_of(folder)].partition(":")
    load = cast("_Load", vars(import_module(module))[name])
    return load(folder, dtype=dtype, pool=pool, progress=progress)
