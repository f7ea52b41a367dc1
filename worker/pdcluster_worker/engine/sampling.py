"""From logits to tokens.

Randomness is a pure function of (seed, position): one uniform number per chosen token, from a
counter-based generator. So a request's text does not depend on which requests share its batch nor
on which worker samples, and a retry repeats it.

The filters (top-k, top-p, min-p) each look at the tempered distribution on their own and a token
must pass all; the uniform number is then looked up in the remaining mass *in token order*, so that
two near-equal tokens swapping ranks does not change the choice.

Log-probabilities are of the model's own distribution: no temperature, penalty, filter or ban.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pdcluster_worker.core.ports import SampleParams
from pdcluster_worker.engine.penalties import adjusted

MASK64 = (1 << 64) - 1
NUCLEUS_CANDIDATES = 256  # sorted first; the whole vocabulary only when they are not enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One chosen token; ``logprob`` and ``top`` only when asked for."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]


def uniform(seed: int, position: int) -> float:
    """In [0, 1), 53 bits, from two rounds of splitmix64 over seed and position."""
    mixed = _mix(_mix(seed & MASK64) ^ ((position * 0xD1B54A32D192ED03) & MASK64))
    return (mixed >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def sample(
    logits: Tensor, params: Sequence[SampleParams], *, positions: Sequence[int]
) -> list[Choice]:
    """One token per row of ``logits`` ``[n, vocab]`` (float32); ``positions`` are those it fills.

    FloatingPointError when a row holds a value that is not a number: the model is broken, and a
    token made of it would be wrong in silence.
    """
    if not bool(torch.isfinite(logits.amax(-1)).all()):
        raise FloatingPointError("the forward pass gave logits that are not finite")
    allowed = adjusted(logits, params)
    tokens = allowed.argmax(-1)
    drawn = [row for row, p in enumerate(params) if p.temperature > 0]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        uniforms = [uniform(params[row].seed, positions[row]) for row in drawn]
        tokens[rows] = _draw(allowed[rows], [params[row] for row in drawn], uniforms)
    return _with_logprobs(logits, params, tokens)


def _draw(logits: Tensor, params: Sequence[SampleParams], uniforms: list[float]) -> Tensor:
    """Inverse of the filtered cumulative distribution at ``uniforms``; ``[n]`` int64."""
    temperature = torch.tensor([p.temperature for p in params], device=logits.device)[:, None]
    # Subtracting the maximum first keeps tiny temperatures finite.
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
    probabilities = torch.softmax(scaled, -1)
    floor = _floor(probabilities, params)
    if floor is not None:
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    mass = probabilities.double().cumsum(-1)
    target = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
    # right=True: the first token whose cumulated mass exceeds the target, never one of no mass.
    return torch.searchsorted(mass, target * mass[:, -1:], right=True).squeeze(-1)


def _floor(probabilities: Tensor, params: Sequence[SampleParams]) -> Tensor | None:
    """The smallest probability that passes all filters, ``[n, 1]``; None when none is set.

    Tokens that tie with the last one that passes top-k or top-p pass as well.
    """
    floors: list[Tensor] = []
    if any(p.min_p > 0 for p in params):
        min_p = torch.tensor([p.min_p for p in params], device=probabilities.device)
        floors.append(probabilities.amax(-1) * min_p)
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        floors.append(_rank_floor(probabilities, params))
    if not floors:
        return None
    return torch.stack(floors).amax(0)[:, None]


def _rank_floor(probabilities: Tensor, params: Sequence[SampleParams]) -> Tensor:
    """Top-k and top-p, from as short a sorted prefix as is enough for every row."""
    vocab = probabilities.shape[-1]
    top_k = [p.top_k if 0 < p.top_k < vocab else vocab for p in params]
    top_p = torch.tensor([p.top_p for p in params], device=probabilities.device)
    limited = max((k for k in top_k if k < vocab), default=0)
    size = min(vocab, max(NUCLEUS_CANDIDATES, limited))
    best = probabilities.topk(size, -1).values
    if size < vocab and bool(((best.sum(-1) < top_p) & _unlimited(top_k, vocab, top_p)).any()):
        best = probabilities.sort(-1, descending=True).values
    before = best.cumsum(-1) - best
    kept = (before < top_p[:, None]).sum(-1).clamp_(min=1)
    kept = torch.minimum(kept, torch.tensor(top_k, device=kept.device))
    floor = best.gather(-1, (kept - 1)[:, None]).squeeze(-1)
    open_rows = _unlimited(top_k, vocab, top_p) & (top_p >= 1)
    return floor.masked_fill(open_rows, 0.0)


def _unlimited(top_k: list[int], vocab: int, like: Tensor) -> Tensor:
    return torch.tensor([k >= vocab for k in top_k], device=like.device)


def _with_logprobs(logits: Tensor, params: Sequence[SampleParams], tokens: Tensor) -> list[Choice]:
    chosen: list[int] = tokens.tolist()
    wanted = [row for row, p in enumerate(params) if p.logprobs is not None]
    found: dict[int, tuple[float, tuple[tuple[int, float], ...]]] = {}
    if wanted:
        logprobs = torch.log_softmax(logits[wanted], -1)
        own = logprobs.gather(-1, tokens[wanted][:, None]).squeeze(-1).tolist()
        most = max(params[row].logprobs or 0 for row in wanted)
        best = logprobs.topk(min(most, logits.shape[-1]), -1)
        ids, values = best.indices.tolist(), best.values.tolist()
        for i, row in enumerate(wanted):
            count = params[row].logprobs or 0
            found[row] = (own[i], tuple(zip(ids[i][:count], values[i][:count], strict=True)))
    return [
        Choice(
            token=token, logprob=found.get(row, (None, ()))[0], top=found.get(row, (None, ()))[1]
        )
        for row, token in enumerate(chosen)
    ]
