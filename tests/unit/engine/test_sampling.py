"""Tokens from logits: frequencies, filters, log-probabilities, independence of the batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.ports import SampleParams
from pdcluster_worker.engine.sampling import sample, uniform

DRAWS = 20_000
CHI_SQUARE_999 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 7: 24.32}  # by degrees of freedom


def draws(logits: list[float], params: SampleParams) -> torch.Tensor:
    """How often each token was chosen, over positions at one seed."""
    row = torch.tensor(logits)
    found = sample(row.expand(DRAWS, -1), [params] * DRAWS, positions=range(DRAWS))
    return torch.bincount(torch.tensor([c.token for c in found]), minlength=len(logits))


@pytest.mark.parametrize("seed", [0, 1, 2**63, 987654321])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_tempered_distribution(seed: int, temperature: float) -> None:
    logits = [1.0, 0.0, -1.0, 2.0, 0.5]
    counts = draws(logits, SampleParams(temperature=temperature, seed=seed))
    expected = torch.softmax(torch.tensor(logits) / temperature, -1) * DRAWS
    assert float(((counts - expected) ** 2 / expected).sum()) < CHI_SQUARE_999[4]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SampleParams(temperature=1.0, top_k=2), [3, 0]),
        (SampleParams(temperature=1.0, top_p=0.7), [3, 0]),
        (SampleParams(temperature=1.0, top_p=1e-9), [3]),
        (SampleParams(temperature=1.0, min_p=0.3), [3, 0]),
        (SampleParams(temperature=1.0, top_k=1), [3]),
        (SampleParams(temperature=1.0, banned=(3,), top_k=1), [0]),
        (SampleParams(temperature=1.0, top_k=3, min_p=0.3), [3, 0]),
    ],
)
def test_filters_keep_exactly_these(params: SampleParams, kept: list[int]) -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0])
    counts = draws(logits.tolist(), params)
    assert sorted(kept) == counts.nonzero().squeeze(-1).tolist()
    expected = torch.softmax(logits[sorted(kept)], -1) * DRAWS
    found = counts[sorted(kept)]
    if len(kept) > 1:
        limit = CHI_SQUARE_999[len(kept) - 1]
        assert float(((found - expected) ** 2 / expected).sum()) < limit


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 2**64 - 1))
def test_a_choice_does_not_depend_on_its_batch(kinds: list[int], seed: int) -> None:
    table = [
        SampleParams(),
        SampleParams(temperature=0.7, seed=seed),
        SampleParams(temperature=1.3, top_p=0.9, seed=seed + 1),
        SampleParams(temperature=1.0, top_k=5, min_p=0.05, seed=seed + 2),
        SampleParams(banned=(1, 2)),
        SampleParams(temperature=1.0, top_k=600, top_p=0.999, logprobs=3, seed=seed),
    ]
    params = [table[kind] for kind in kinds]
    logits = torch.from_numpy(np.random.default_rng(seed % 1000).normal(size=(len(kinds), 700)))
    logits = logits.float() * 3
    positions = [11 * i for i in range(len(kinds))]
    together = sample(logits, params, positions=positions)
    for i, choice in enumerate(together):
        alone = sample(logits[i : i + 1], [params[i]], positions=[positions[i]])[0]
        assert alone.token == choice.token
        assert [t for t, _ in alone.top] == [t for t, _ in choice.top]


def test_greedy_ignores_everything_but_bans() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0]] * 3)
    params = [
        SampleParams(top_k=1, top_p=0.1, seed=4),
        SampleParams(banned=(1,)),
        SampleParams(banned=(1, 2)),
    ]
    assert [c.token for c in sample(logits, params, positions=[0, 0, 0])] == [1, 2, 0]


def test_logprobs_are_of_the_untempered_model() -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(0))
    params = SampleParams(temperature=0.3, top_k=4, banned=(7,), logprobs=128, seed=3)
    (choice,) = sample(logits, [params], positions=[5])
    expected = torch.log_softmax(logits[0], -1)
    assert choice.logprob == pytest.approx(float(expected[choice.token]), abs=1e-6)
    assert len(choice.top) == 128
    assert [t for t, _ in choice.top] == expected.topk(128).indices.tolist()
    assert choice.top[0][1] == pytest.approx(float(expected.max()), abs=1e-6)


def test_logprobs_zero_gives_the_chosen_one_alone_and_none_gives_nothing() -> None:
    logits = torch.zeros(2, 9)
    found = sample(logits, [SampleParams(logprobs=0), SampleParams()], positions=[1, 1])
    assert found[0].logprob == pytest.approx(-np.log(9))
    assert found[0].top == ()
    assert (found[1].logprob, found[1].top) == (None, ())


def test_a_wide_nucleus_needs_the_whole_vocabulary() -> None:
    """More tokens inside top_p than are sorted first."""
    params = SampleParams(temperature=1.0, top_p=0.9)
    seen = {
        c.token for c in sample(torch.zeros(5000, 2000), [params] * 5000, positions=range(5000))
    }
    assert len(seen) > 1500


def test_what_is_not_a_number_is_an_error() -> None:
    with pytest.raises(FloatingPointError):
        sample(torch.tensor([[0.0, float("nan")]]), [SampleParams()], positions=[0])


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_uniform_is_in_range_and_differs_by_position(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0
    assert uniform(seed, position) != uniform(seed, position + 1)
