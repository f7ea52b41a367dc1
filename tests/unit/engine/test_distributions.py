"""Drawn tokens against distributions computed from the definitions, and that the test can tell."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pdcluster_worker.core.ports import SampleParams
from pdcluster_worker.engine import sampling
from pdcluster_worker.pipeline.request import from_submit
from pdcluster_worker.wire.local import Sampling, Submit
from tests.unit.engine.distributions import counts_of, critical, disagreement, expected

DRAWS = 3000
# In no order of rank, both signs, neighbours in rank far enough apart to be told from each other.
LOGITS = (0.3, 2.0, -1.0, 1.1, -0.4, 2.6, 0.8, -1.6, 1.5, -0.1)
SEEN = (5, 5, 5, 1, 7)  # an answer so far
PROMPT = np.array([1, 2, 2, 8])


@dataclass(frozen=True)
class Case:
    """One request."""

    name: str
    params: SampleParams


FILTERS = (
    Case("top-k 1", SampleParams(temperature=1.0, top_k=1)),
    Case("top-k 2", SampleParams(temperature=0.7, top_k=2)),
    Case("top-k 4", SampleParams(temperature=1.4, top_k=4)),
    Case("top-p 0.5", SampleParams(temperature=1.0, top_p=0.5)),
    Case("top-p 0.8", SampleParams(temperature=1.3, top_p=0.8)),
    Case("min-p 0.2", SampleParams(temperature=1.0, min_p=0.2)),
    Case("min-p 0.1 warm", SampleParams(temperature=1.8, min_p=0.1)),
    Case("top-k cuts top-p", SampleParams(temperature=1.7, top_k=3, top_p=0.95)),
    Case("top-p cuts top-k", SampleParams(temperature=1.2, top_k=7, top_p=0.6)),
    Case("min-p cuts both", SampleParams(temperature=1.9, top_k=8, top_p=0.97, min_p=0.4)),
)
TEMPERATURES = tuple(
    Case(f"temperature {value}", SampleParams(temperature=value)) for value in (0.5, 0.8, 1.5, 3.0)
)
TEMPERED = tuple(case for case in TEMPERATURES + FILTERS if case.params.temperature != 1.0)
TRANSFORMS = (
    Case("repetition", SampleParams(repetition_penalty=1.8, prompt=PROMPT, output=SEEN)),
    Case("repetition below 1", SampleParams(repetition_penalty=0.6, prompt=PROMPT, output=SEEN)),
    Case("presence", SampleParams(presence_penalty=0.9, prompt=PROMPT, output=SEEN)),
    Case("negative presence", SampleParams(presence_penalty=-0.9, output=SEEN)),
    Case("frequency", SampleParams(frequency_penalty=0.6, prompt=PROMPT, output=SEEN)),
    Case("bias", SampleParams(logit_bias=((2, 2.5), (5, -1.5)))),
    Case("ban", SampleParams(banned=(5, 8))),
    Case(
        "all of them",
        SampleParams(
            repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3, prompt=PROMPT,
            output=SEEN, logit_bias=((4, 1.5),), banned=(8,), top_k=6, top_p=0.93, min_p=0.05,
        ),
    ),
)  # fmt: skip


def warm(case: Case) -> SampleParams:
    """A transform's request, drawn at a temperature that is not 1."""
    values = {name: getattr(case.params, name) for name in SampleParams.__slots__}
    return SampleParams(**values | {"temperature": 1.2})


def complaint(params: SampleParams) -> str:
    """Empty when the product draws as the definitions say."""
    counts = counts_of(LOGITS, params, draws=DRAWS)
    return disagreement(counts, expected(LOGITS, params))


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", TEMPERATURES + FILTERS, ids=named)
def test_filters_and_temperature_draw_as_defined(case: Case) -> None:
    assert complaint(case.params) == ""


@pytest.mark.parametrize("case", TRANSFORMS, ids=named)
def test_penalties_biases_and_bans_draw_as_defined(case: Case) -> None:
    assert complaint(warm(case)) == ""


def test_a_nucleus_wider_than_what_is_sorted_first() -> None:
    """The whole vocabulary is sorted for it."""
    logits = np.random.default_rng(3).normal(size=450)
    params = SampleParams(temperature=1.6, top_p=0.92)
    probabilities = expected(logits.tolist(), params)
    assert (probabilities > 0).sum() > sampling.NUCLEUS_CANDIDATES
    counts = counts_of(logits.tolist(), params, draws=DRAWS)
    assert disagreement(counts, probabilities) == ""


@pytest.mark.parametrize("wanted", [0, 2, 3])
def test_min_tokens_keeps_stop_tokens_out_until_then(wanted: int) -> None:
    """Of an answer with two tokens so far; the stop token is the likeliest."""
    options = Sampling(temperature=1.0, min_new_tokens=wanted, stop_token_ids=(5,))
    submit = Submit(rid="r", input_ids=np.array([1, 2], "<i4").tobytes(), sampling=options)
    request = from_submit(submit, key=1, capacity=100, eos_token_ids=(1,))
    request.output += [3, 3]
    early = SampleParams(temperature=1.0, banned=(1, 5))
    plain = SampleParams(temperature=1.0)
    counts = counts_of(LOGITS, request.sample_params(), draws=DRAWS)
    assert disagreement(counts, expected(LOGITS, early if wanted > 2 else plain)) == ""


# ------------------------------------------------------------- the comparison sees what is wrong
@pytest.mark.parametrize("shift", [-1, 1], ids=["one less", "one more"])
@pytest.mark.parametrize("case", FILTERS, ids=named)
def test_a_filter_off_by_one_rank_is_seen(
    case: Case, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = sampling._floor

    def shifted(probabilities: torch.Tensor, params: list[SampleParams]) -> torch.Tensor:
        """The floor moved to the next rank."""
        ranked = probabilities.sort(-1, descending=True).values
        found = floor(probabilities, params)
        assert found is not None
        kept = (ranked >= found).sum(-1) + shift
        if kept[0] == 0:  # nothing would be left: the best token is dropped instead
            return torch.zeros_like(found)
        return ranked.gather(-1, (kept - 1)[:, None])

    monkeypatch.setattr(sampling, "_floor", shifted)
    assert complaint(case.params)


@pytest.mark.parametrize("case", TEMPERED, ids=named)
def test_an_ignored_temperature_is_seen(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling._draw

    def cold(
        logits: torch.Tensor, params: list[SampleParams], uniforms: list[float]
    ) -> torch.Tensor:
        return draw(
            logits * torch.tensor([p.temperature for p in params])[:, None], params, uniforms
        )

    monkeypatch.setattr(sampling, "_draw", cold)
    assert complaint(case.params)


@pytest.mark.parametrize("case", TRANSFORMS, ids=named)
def test_an_ignored_transform_is_seen(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "adjusted", lambda logits, params: logits)
    assert complaint(warm(case))


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ("repetition", SampleParams(repetition_penalty=1.8, prompt=PROMPT)),
        ("repetition", SampleParams(repetition_penalty=1.8, output=SEEN)),
        ("presence", SampleParams(presence_penalty=0.9, output=(*SEEN, 2, 8))),
        ("frequency", SampleParams(frequency_penalty=0.6, output=(5, 1, 7))),
        ("frequency", SampleParams(presence_penalty=0.6, output=SEEN)),
    ],
    ids=["no answer", "no prompt", "prompt counted", "counted once", "presence instead"],
)
def test_a_penalty_of_the_wrong_tokens_is_seen(case: str, wrong: SampleParams) -> None:
    [right] = [c for c in TRANSFORMS if c.name == case]
    counts = counts_of(LOGITS, warm(Case("", wrong)), draws=DRAWS)
    assert disagreement(counts, expected(LOGITS, warm(right)))


@pytest.mark.parametrize(
    ("degrees", "exact"), [(1, 10.828), (4, 18.467), (9, 27.877), (99, 148.23)]
)
def test_the_critical_value_is_near_the_tabled_one(degrees: int, exact: float) -> None:
    assert critical(degrees, alpha=0.001) == pytest.approx(exact, rel=0.04)
