"""What moves logits before a token is chosen: penalties, biases, bans, in this order.

    repetition   a token of the prompt or the answer: logit / r where positive, logit * r elsewhere
    presence     a token of the answer: - p
    frequency    a token of the answer: - f per occurrence
    bias         + b for the tokens named
    ban          -inf

Rows that ask for nothing cost nothing: only rows that do are copied and touched.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pdcluster_worker.core.ports import SampleParams


def adjusted(logits: Tensor, params: Sequence[SampleParams]) -> Tensor:
    """``logits`` ``[n, vocab]`` as each row's parameters want them; the input is left alone."""
    touched = [row for row, p in enumerate(params) if _asks(p)]
    if not touched:
        return logits
    moved = logits.clone()
    for row in touched:
        _adjust(moved[row], params[row])
    return moved


def _asks(p: SampleParams) -> bool:
    penalised = p.repetition_penalty != 1 or p.presence_penalty or p.frequency_penalty
    return bool(penalised or p.logit_bias or p.banned)


def _adjust(row: Tensor, p: SampleParams) -> None:
    if p.repetition_penalty != 1:
        _repetition(row, p)
    if p.output and (p.presence_penalty or p.frequency_penalty):
        counts = Counter(p.output)
        tokens = torch.tensor(list(counts), device=row.device)
        times = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)
        row[tokens] -= p.presence_penalty + p.frequency_penalty * times
    # A token that is none must not fail the pass of the others in the batch.
    known = [(token, value) for token, value in p.logit_bias if 0 <= token < len(row)]
    if known:
        tokens = torch.tensor([token for token, _ in known], device=row.device)
        bias = torch.tensor([value for _, value in known], dtype=row.dtype)
        row.index_add_(0, tokens, bias.to(row.device))
    if banned := [token for token in p.banned if 0 <= token < len(row)]:
        row[banned] = float("-inf")


def _repetition(row: Tensor, p: SampleParams) -> None:
    prompt = np.empty(0, np.int64) if p.prompt is None else p.prompt
    seen = np.union1d(prompt, np.array(p.output, np.int64))
    if seen.size == 0:
        return
    tokens = torch.from_numpy(seen).to(row.device)
    values = row[tokens]
    weaker = torch.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
    row[tokens] = weaker
