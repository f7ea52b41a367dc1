"""Penalties and biases, by hand and by distribution."""

import numpy as np
import pytest
import torch

from pdcluster_worker.core.ports import SampleParams
from pdcluster_worker.engine.penalties import adjusted
from pdcluster_worker.engine.sampling import sample

LOGITS = torch.tensor([[2.0, -2.0, 1.0, 0.5, 0.0]])


def moved(params: SampleParams) -> list[float]:
    """The one row after it."""
    found: list[float] = adjusted(LOGITS, [params])[0].tolist()
    return found


def test_nothing_asked_copies_nothing() -> None:
    assert adjusted(LOGITS, [SampleParams(temperature=1.0)]) is LOGITS


def test_repetition_weakens_what_was_seen_on_either_side_of_zero() -> None:
    params = SampleParams(repetition_penalty=2.0, prompt=np.array([0, 1, 1]), output=(3,))
    assert moved(params) == [1.0, -4.0, 1.0, 0.25, 0.0]


def test_presence_counts_once_and_frequency_each_time_and_the_prompt_not_at_all() -> None:
    params = SampleParams(
        presence_penalty=0.5, frequency_penalty=0.25, prompt=np.array([2]), output=(0, 0, 3)
    )
    assert moved(params) == [1.0, -2.0, 1.0, -0.25, 0.0]


def test_bias_and_bans_come_last() -> None:
    params = SampleParams(logit_bias=((4, 9.0), (1, 1.0)), banned=(0,))
    assert moved(params) == [float("-inf"), -1.0, 1.0, 0.5, 9.0]
    assert LOGITS[0].tolist() == [2.0, -2.0, 1.0, 0.5, 0.0], "the input is left alone"


def test_tokens_that_are_none_are_passed_over() -> None:
    params = SampleParams(logit_bias=((99, 1.0), (-3, 1.0), (4, 1.0)), banned=(99, -1))
    assert moved(params) == [2.0, -2.0, 1.0, 0.5, 1.0]


def test_a_bias_decides_a_greedy_choice_and_leaves_logprobs_alone() -> None:
    [plain] = sample(LOGITS, [SampleParams(logprobs=1)], positions=[1])
    [biased] = sample(LOGITS, [SampleParams(logprobs=1, logit_bias=((4, 100.0),))], positions=[1])
    assert (plain.token, biased.token) == (0, 4)
    assert plain.top == biased.top


@pytest.mark.parametrize(
    "params",
    [
        SampleParams(temperature=0.8, presence_penalty=0.7, output=(0, 2)),
        SampleParams(temperature=1.0, frequency_penalty=0.4, output=(0, 0, 3)),
        SampleParams(temperature=1.3, repetition_penalty=1.5, prompt=np.array([0, 1])),
        SampleParams(temperature=1.0, logit_bias=((1, 2.5), (0, -1.0))),
    ],
    ids=["presence", "frequency", "repetition", "bias"],
)
def test_drawn_tokens_follow_the_adjusted_distribution(params: SampleParams) -> None:
    """Chi-square over 4,000 draws at fixed seeds; 4 degrees of freedom, p = 0.001 is 18.5."""
    draws, size = 4000, LOGITS.shape[-1]
    counts = np.zeros(size)
    for start in range(0, draws, 500):
        rows = LOGITS.expand(500, size)
        positions = list(range(start, start + 500))
        for choice in sample(rows, [params] * 500, positions=positions):
            counts[choice.token] += 1
    row = adjusted(LOGITS, [params])[0]
    expected = torch.softmax(row / params.temperature, -1).numpy() * draws
    assert ((counts - expected) ** 2 / expected).sum() < 18.5


def test_a_row_is_moved_by_its_own_parameters_only() -> None:
    rows = LOGITS.expand(3, 5)
    params = [SampleParams(), SampleParams(logit_bias=((4, 9.0),)), SampleParams()]
    both = adjusted(rows, params)
    assert both[0].tolist() == both[2].tolist() == LOGITS[0].tolist()
    assert both[1].tolist()[4] == 9.0
