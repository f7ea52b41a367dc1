"""Rotary position embedding, Llama's half-split form.

The table holds, per position, ``cos`` twice and ``sin`` with its first half negated, so that a
rotation is one multiply and one fused multiply-add of the half-swapped input.
"""

import math

import torch
from torch import Tensor

from pdcluster_worker.engine.config import RopeConfig


class RopeTable:
    """``cos`` and signed ``sin``, each ``[positions, 1, head_dim]`` in the compute dtype."""

    def __init__(
        self, config: RopeConfig, *, head_dim: int, positions: int, dtype: torch.dtype,
        device: str, factors: Tensor | None = None,
    ) -> None:  # fmt: skip
        frequencies = _frequencies(config, head_dim)
        if factors is not None:
            frequencies = frequencies / factors.float()
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat((cos, cos), -1).unsqueeze(1).to(device, dtype)
        self._sin = torch.cat((-sin, sin), -1).unsqueeze(1).to(device, dtype)
        self.half = head_dim // 2

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of ``positions`` ``[n]``: once per batch, used by every layer."""
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


def rotate(x: Tensor, *, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` ``[n, heads, head_dim]`` turned by ``cos`` and ``sin`` ``[n, 1, head_dim]``."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position, ``[head_dim / 2]`` float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (config.theta**exponents)
    if config.kind == "linear":
        return frequencies / config.factor
    if config.kind == "llama3":
        return _stretch_low(frequencies, config)
    return frequencies


def _stretch_low(frequencies: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: slow waves are stretched by ``factor``, fast ones kept, blended in between."""
    wavelengths = 2 * math.pi / frequencies
    turns = config.original_context / wavelengths  # within the original context
    low, high = config.low_frequency_factor, config.high_frequency_factor
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * keep + frequencies / config.factor * (1.0 - keep)
