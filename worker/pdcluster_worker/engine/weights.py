"""From safetensors to the tensors of a forward pass: fused, cast, in the kernels' order.

Reading happens tensor by tensor through a memory map, so the peak is one layer above the final
size.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from pdcluster_worker.engine.config import LlamaConfig
from pdcluster_worker.engine.linear import Projection, projection
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.folder import weight_files
from pdcluster_worker.models.progress import Progress

ROPE_FACTORS = "model.rope_factors"  # written by our GGUF conversion when the file has them


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One transformer block."""

    input_norm: Tensor  # [hidden]
    post_norm: Tensor  # [hidden]
    qkv: Projection  # hidden -> (heads + 2 * kv_heads) * head_dim
    output: Projection  # heads * head_dim -> hidden
    gate_up: Projection  # hidden -> 2 * intermediate
    down: Projection  # intermediate -> hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaWeights:
    """All of a model."""

    embedding: Tensor  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [hidden]
    head: Projection  # hidden -> vocab
    rope_factors: Tensor | None  # [head_dim / 2]


class _Files:
    """Tensors by name over all files of a folder, cast and moved when read."""

    def __init__(self, folder: Path, *, dtype: torch.dtype, device: str) -> None:
        self._dtype, self._device = dtype, device
        self._where = {
            name: file
            for path in weight_files(folder)
            for file in [safe_open(str(path), framework="pt")]
            for name in file.keys()  # noqa: SIM118 - not a dict
        }

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, *names: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensors ``names`` stacked along rows; together they must have ``shape``."""
        for name in names:
            if name not in self._where:
                raise ModelError(f"the weights have no tensor {name!r}")
        parts = [self._where[name].get_tensor(name).to(dtype or self._dtype) for name in names]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        if tuple(tensor.shape) != shape:
            raise ModelError(f"{names} have shape {tuple(tensor.shape)}, config.json says {shape}")
        # A clone, since a tensor that needs no cast still lives in the file's mapping.
        return tensor.to(self._device) if self._device != "cpu" else tensor.clone()


def load_weights(
    folder: Path, config: LlamaConfig, *, dtype: torch.dtype, device: str, progress: Progress
) -> LlamaWeights:
    """Read, fuse, cast and pack. ModelError when a tensor is absent or of another shape."""
    files = _Files(folder, dtype=dtype, device=device)
    total = config.layers + 1
    embedding = files.read("model.embed_tokens.weight", shape=(config.vocab, config.hidden))
    head = embedding
    if not config.tied:
        head = files.read("lm_head.weight", shape=(config.vocab, config.hidden))
    factors = None
    if ROPE_FACTORS in files:
        factors = files.read(ROPE_FACTORS, shape=(config.head_dim // 2,), dtype=torch.float32)
    progress("loading weights", 1, total)
    layers = []
    for index in range(config.layers):
        layers.append(_load_layer(files, config, index))
        progress("loading weights", index + 2, total)
    return LlamaWeights(
        embedding=embedding,
        layers=tuple(layers),
        norm=files.read("model.norm.weight", shape=(config.hidden,)),
        head=projection(head),
        rope_factors=factors,
    )


def _load_layer(files: _Files, config: LlamaConfig, index: int) -> LayerWeights:
    prefix = f"model.layers.{index}"
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    hidden, width = config.hidden, config.heads * config.head_dim
    qkv_rows = (config.heads + 2 * config.kv_heads) * config.head_dim
    qkv = [f"{attention}.{name}_proj.weight" for name in ("q", "k", "v")]
    gate_up = [f"{mlp}.{name}_proj.weight" for name in ("gate", "up")]
    return LayerWeights(
        input_norm=files.read(f"{prefix}.input_layernorm.weight", shape=(hidden,)),
        post_norm=files.read(f"{prefix}.post_attention_layernorm.weight", shape=(hidden,)),
        qkv=projection(files.read(*qkv, shape=(qkv_rows, hidden))),
        output=projection(files.read(f"{attention}.o_proj.weight", shape=(hidden, width))),
        gate_up=projection(files.read(*gate_up, shape=(2 * config.intermediate, hidden))),
        down=projection(files.read(f"{mlp}.down_proj.weight", shape=(hidden, config.intermediate))),
    )
