"""Which prompt tokens each chunk is asked to score (F18)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.ports import Score, StepResult
from pdcluster_worker.pipeline.request import from_submit
from pdcluster_worker.wire.local import Sampling, Submit


@given(
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(0, 45)),
    st.lists(st.integers(1, 12), min_size=40, max_size=40),
)
def test_every_wanted_token_is_scored_once_after_the_row_before_it(
    length: int, wanted_from: int | None, chunks: list[int]
) -> None:
    prompt = np.arange(100, 100 + length)
    sampling = Sampling(input_logprobs_from=wanted_from, logprobs=2)
    submit = Submit(rid="r", input_ids=prompt.astype("<i4").tobytes(), sampling=sampling)
    request = from_submit(submit, key=1, capacity=99, eos_token_ids=())
    found: list[int] = []
    for chunk in chunks:
        tokens = prompt[request.computed : request.computed + chunk]
        if not len(tokens):
            break
        step = request.step(tokens=tokens, pages=np.zeros(9, np.int32), sample=False)
        if step.scoring is not None:
            assert step.scoring.top == 2
            first = step.scoring.row + step.start
            assert step.scoring.row + len(step.scoring.targets) <= len(tokens)
            assert list(step.scoring.targets) == [
                101 + first + i for i in range(len(step.scoring.targets))
            ]
            found += list(step.scoring.targets)
        request.computed += len(tokens)
    assert found == ([] if wanted_from is None else list(prompt[wanted_from + 1 :]))
    more = request.step(tokens=prompt[:1], pages=np.zeros(9, np.int32), sample=True)
    assert more.scoring is None


def test_scores_are_told_once_with_the_first_token() -> None:
    submit = Submit(rid="r", input_ids=b"\1\0\0\0" * 2, sampling=Sampling(logprobs=1))
    request = from_submit(submit, key=1, capacity=99, eos_token_ids=())
    request.scores.append(Score(-1.5, ((7, -0.5),)))
    result = StepResult(key=1, token=3, logprob=-1.0)
    first = request.tokens_message(result)
    assert first.input_logprobs == (-1.5,)
    assert [(top.token, top.logprob) for top in first.input_top[0]] == [(7, -0.5)]
    assert request.tokens_message(result).input_logprobs == ()
