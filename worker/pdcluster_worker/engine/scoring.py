"""Log-probabilities of prompt tokens: the head applied to the rows that ask, in bounded slices.

A prompt's logits are the largest thing a pass could make (32k tokens of a 128k vocabulary are
16 GiB), so no more than `SLICE_ELEMENTS` of them exist at a time, and none of rows nobody asked of.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pdcluster_worker.core.ports import Score, Scoring

SLICE_ELEMENTS = 1 << 22  # logits at a time: 16 MiB of float32, or one row where that is more
Head = Callable[[Tensor], Tensor]


def score(
    hidden: Tensor, wanted: Sequence[Scoring], *, head: Head, vocab: int
) -> list[tuple[Score, ...]]:
    """One tuple per ``wanted``, one `Score` per target.

    ``hidden`` is ``[sum of targets, hidden]``, the rows of all ``wanted`` in order; ``head`` makes
    float32 logits ``[n, vocab]`` of any part of it. FloatingPointError when a row's logits are not
    finite, as in `sampling.sample`.
    """
    found: list[tuple[Score, ...]] = []
    begin = 0
    for scoring in wanted:
        rows = hidden[begin : begin + len(scoring.targets)]
        found.append(tuple(_of_one(rows, scoring, head=head, vocab=vocab)))
        begin += len(scoring.targets)
    return found


def _of_one(hidden: Tensor, scoring: Scoring, *, head: Head, vocab: int) -> list[Score]:
    targets = torch.from_numpy(scoring.targets).to(hidden.device)
    scores: list[Score] = []
    size = max(1, SLICE_ELEMENTS // vocab)
    for begin in range(0, len(hidden), size):
        part = slice(begin, begin + size)
        scores += _scores(head(hidden[part]), targets[part], scoring.top)
    return scores


def _scores(logits: Tensor, targets: Tensor, top: int) -> list[Score]:
    if not bool(torch.isfinite(logits.amax(-1)).all()):
        raise FloatingPointError("the forward pass gave logits that are not finite")
    logprobs = torch.log_softmax(logits, -1)
    own: list[float] = logprobs.gather(-1, targets[:, None]).squeeze(-1).tolist()
    if not top:
        return [Score(value) for value in own]
    best = logprobs.topk(min(top, logits.shape[-1]), -1)
    ids, values = best.indices.tolist(), best.values.tolist()
    return [
        Score(value, tuple(zip(*pair, strict=True)))
        for value, *pair in zip(own, ids, values, strict=True)
    ]
