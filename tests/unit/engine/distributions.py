"""What a token's distribution should be, in numpy from the definitions, and how to compare.

Nothing here calls the product but `counts_of`, which draws. The expected side is slow and plain on
purpose: loops over ranks and tokens, float64.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray

from pdcluster_worker.core.ports import SampleParams
from pdcluster_worker.engine.sampling import sample

Floats = NDArray[np.float64]

ALPHA = 1e-4  # of one comparison; seeds are fixed, so a pass stays a pass
EXPECTED_MIN = 5.0  # draws below which tokens are counted as one: chi-square needs so many
ROWS_AT_ONCE = 1000  # bounds the memory of a wide vocabulary
POSITIONS_PER_SEED = 50


def penalised(logits: Sequence[float], params: SampleParams) -> Floats:
    """Penalties, biases and bans, token by token."""
    moved = np.array(logits, np.float64)
    prompt = set() if params.prompt is None else {int(token) for token in params.prompt}
    biases = dict(params.logit_bias)
    for token in range(len(moved)):
        times = params.output.count(token)
        if token in prompt or times:
            factor = params.repetition_penalty
            moved[token] = moved[token] / factor if moved[token] > 0 else moved[token] * factor
        moved[token] -= params.presence_penalty * (times > 0) + params.frequency_penalty * times
        moved[token] += biases.get(token, 0.0)
        if token in params.banned:
            moved[token] = -np.inf
    return moved


def expected(logits: Sequence[float], params: SampleParams) -> Floats:
    """Probability of each token. Logits must differ: how ties are cut is not defined here.

    Every filter looks at the tempered distribution, and a token must pass all of them:
    top-k       its rank is among the first k
    top-p       the tokens before it hold less than p
    min-p       it has at least min_p times the best one's probability
    """
    scaled = penalised(logits, params) / params.temperature
    mass = np.exp(scaled - scaled.max())
    mass /= mass.sum()
    kept = np.zeros(len(mass))
    before = 0.0
    for rank, token in enumerate(np.argsort(-mass)):
        in_top_k = params.top_k <= 0 or rank < params.top_k
        if in_top_k and before < params.top_p and mass[token] >= params.min_p * mass.max():
            kept[token] = mass[token]
        before += mass[token]
    result: Floats = kept / kept.sum()
    return result


def counts_of(logits: Sequence[float], params: SampleParams, *, draws: int) -> Floats:
    """How often the product chooses each token, over both seeds and positions."""
    row = torch.tensor(logits, dtype=torch.float32)
    counts = np.zeros(len(logits))
    per_seed = [with_seed(params, 1234 + i) for i in range(-(-draws // POSITIONS_PER_SEED))]
    for start in range(0, draws, ROWS_AT_ONCE):
        numbers = range(start, min(draws, start + ROWS_AT_ONCE))
        rows = row.expand(len(numbers), -1)
        seeded = [per_seed[number // POSITIONS_PER_SEED] for number in numbers]
        positions = [number % POSITIONS_PER_SEED for number in numbers]
        tokens = [choice.token for choice in sample(rows, seeded, positions=positions)]
        counts += np.bincount(tokens, minlength=len(logits))
    return counts


def with_seed(params: SampleParams, seed: int) -> SampleParams:
    """The same request with another seed. `replace` would compare arrays."""
    values = {name: getattr(params, name) for name in SampleParams.__slots__}
    return SampleParams(**values | {"seed": seed})


def critical(degrees: int, *, alpha: float = ALPHA) -> float:
    """Chi-square that is exceeded with probability ``alpha``, after Wilson and Hilferty.

    Above the exact value by at most 4 %, with one degree of freedom, for small ``alpha``.
    """
    spread = 2.0 / (9.0 * degrees)
    root = 1.0 - spread + NormalDist().inv_cdf(1.0 - alpha) * float(np.sqrt(spread))
    return degrees * root**3


def disagreement(counts: Floats, probabilities: Floats) -> str:
    """Why ``counts`` are no draws of ``probabilities``; empty when they may well be."""
    draws = counts.sum()
    possible = probabilities > 0
    if counts[~possible].any():
        return f"tokens {np.flatnonzero(~possible & (counts > 0))} have no probability"
    cells = _cells(counts[possible], probabilities[possible] * draws)
    degrees = len(cells) - 1
    if degrees == 0:
        return ""
    found = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    limit = critical(degrees)
    return "" if found < limit else f"chi-square {found:.1f}, at most {limit:.1f} with {degrees}"


def _cells(counts: Floats, wanted: Floats) -> list[tuple[float, float]]:
    """(seen, expected) draws; tokens too rare for chi-square share a cell."""
    frequent = wanted >= EXPECTED_MIN
    cells = list(zip(counts[frequent].tolist(), wanted[frequent].tolist(), strict=True))
    if (rest := float(wanted[~frequent].sum())) >= EXPECTED_MIN:
        cells.append((float(counts[~frequent].sum()), rest))
    elif rest > 0:
        seen, expected_draws = cells.pop()
        cells.append((seen + float(counts[~frequent].sum()), expected_draws + rest))
    return cells
