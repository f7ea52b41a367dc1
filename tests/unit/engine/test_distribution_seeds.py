"""A seeded answer is the same alone, in a batch of eight, and in whichever row of it."""

from collections.abc import Sequence

import numpy as np
import pytest

from pdcluster_worker.core.ports import SampleParams, SequenceStep
from tests.unit.engine.rig import Ids, Rig, step

ANSWER_TOKENS = 12
PROMPT = np.random.default_rng(8).integers(3, 512, 21)
REQUESTS = {
    "temperature": SampleParams(temperature=1.0, seed=11),
    "filters": SampleParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.01, seed=12),
    "penalties": SampleParams(
        temperature=0.9, seed=13, repetition_penalty=1.2, frequency_penalty=0.4, prompt=PROMPT,
        logit_bias=((30, 2.0),), banned=(2,),
    ),
}  # fmt: skip


def answers(rig: Rig, prompts: Sequence[Ids], params: Sequence[SampleParams]) -> list[list[int]]:
    """Answers of a batch that is computed together from the first pass on."""
    pages = [rig.pages_for(len(prompt) + ANSWER_TOKENS) for prompt in prompts]
    outputs: list[list[int]] = [[] for _ in prompts]
    for _ in range(ANSWER_TOKENS):
        batch: list[SequenceStep] = []
        for row, prompt in enumerate(prompts):
            so_far = outputs[row]
            new = np.array(so_far[-1:]) if so_far else prompt
            start = len(prompt) + len(so_far) - len(new)
            batch.append(step(row, new, start, pages[row], _after(params[row], so_far)))
        for result in rig.run(batch):
            assert result.token is not None
            outputs[result.key].append(result.token)
    return outputs


def _after(params: SampleParams, output: list[int]) -> SampleParams:
    """The request's parameters once it has said ``output``."""
    values = {name: getattr(params, name) for name in SampleParams.__slots__}
    return SampleParams(**values | {"output": tuple(output)})


@pytest.mark.parametrize("row", [0, 3, 7])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_seed_gives_the_same_answer_in_any_company(rig: Rig, name: str, row: int) -> None:
    [alone] = answers(rig, [PROMPT], [REQUESTS[name]])
    draw = np.random.default_rng(row)
    prompts = [draw.integers(3, 512, int(draw.integers(5, 60))) for _ in range(8)]
    kinds = list(REQUESTS.values())
    params = [kinds[int(draw.integers(len(kinds)))] for _ in range(8)]
    prompts[row], params[row] = PROMPT, REQUESTS[name]
    assert answers(rig, prompts, params)[row] == alone
    assert len(set(alone)) > ANSWER_TOKENS // 3


def test_another_seed_gives_another_answer(rig: Rig) -> None:
    seeds = [SampleParams(temperature=1.0, seed=seed) for seed in (11, 12, 11)]
    first, second, again = answers(rig, [PROMPT] * 3, seeds)
    assert first == again
    assert first != second
