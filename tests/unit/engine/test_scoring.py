"""Log-probabilities of the prompt (F18): those of one whole forward pass, however it is cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdcluster_worker.core.ports import Score, Scoring, SequenceStep
from pdcluster_worker.engine import scoring
from tests.unit.engine.rig import GREEDY, Ids, Rig

PROMPT = 150
TOP = 5


@pytest.fixture(scope="module")
def model(tiny: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM.from_pretrained(tiny, dtype=torch.float32).eval()


def prompt(seed: int = 0, count: int = PROMPT) -> Ids:
    return np.random.default_rng(seed).integers(3, 512, count)


def reference(model: Any, ids: Ids) -> torch.Tensor:
    """``[n - 1, vocab]``: row i is about token i + 1."""
    with torch.inference_mode():
        found: torch.Tensor = model(torch.from_numpy(ids)[None]).logits[0, :-1]
    return found.log_softmax(-1)


def cuts(ids: Ids, size: int, *, wanted_from: int, top: int) -> Iterator[tuple[int, Ids, Any]]:
    """Start, tokens and `Scoring` of every chunk, for the tokens behind ``wanted_from``."""
    for start in range(0, len(ids), size):
        tokens = ids[start : start + size]
        begin = max(wanted_from, start) + 1
        targets = ids[begin : start + len(tokens) + 1]
        asked = Scoring(row=begin - 1 - start, targets=targets, top=top) if len(targets) else None
        yield start, tokens, asked


def scores_of(rig: Rig, ids: Ids, size: int, *, wanted_from: int, top: int) -> list[Score]:
    pages = rig.pages_for(len(ids))
    found: list[Score] = []
    for start, tokens, asked in cuts(ids, size, wanted_from=wanted_from, top=top):
        last = start + len(tokens) == len(ids)
        (result,) = rig.run(
            [
                SequenceStep(
                    key=1, tokens=tokens, start=start, pages=pages,
                    sample=GREEDY if last else None, scoring=asked,
                )
            ]
        )  # fmt: skip
        assert (result.token is not None) == last
        found += result.scores
    return found


@pytest.mark.parametrize("size", [1, 7, 64, PROMPT])
@pytest.mark.parametrize("wanted_from", [0, 63, 100, PROMPT - 2])
def test_any_cut_gives_the_scores_of_the_whole(
    rig: Rig, model: Any, size: int, wanted_from: int
) -> None:
    ids = prompt()
    found = scores_of(rig, ids, size, wanted_from=wanted_from, top=TOP)
    expected = reference(model, ids)[wanted_from:]
    assert len(found) == len(expected) == PROMPT - 1 - wanted_from
    for score, row, target in zip(found, expected, ids[wanted_from + 1 :], strict=True):
        assert score.logprob == pytest.approx(float(row[target]), abs=1e-3)
        assert [value for _, value in score.top] == pytest.approx(
            row.topk(TOP).values.tolist(), abs=1e-3
        )
        for token, value in score.top:
            assert value == pytest.approx(float(row[token]), abs=1e-3)


def test_two_prompts_and_an_answer_share_a_pass(rig: Rig, model: Any) -> None:
    """Each has its own rows, its own number of best tokens, and its own place in the batch."""
    first, second, third = prompt(1, 40), prompt(2, 33), prompt(3, 20)
    pages = [rig.pages_for(len(ids) + 1) for ids in (first, second, third)]
    (begun,) = rig.run([SequenceStep(key=3, tokens=third, start=0, pages=pages[2], sample=GREEDY)])
    steps = [
        SequenceStep(
            key=1, tokens=first, start=0, pages=pages[0], sample=GREEDY,
            scoring=Scoring(row=5, targets=first[6:], top=2),
        ),
        SequenceStep(
            key=3, tokens=np.array([begun.token]), start=20, pages=pages[2], sample=GREEDY
        ),
        SequenceStep(
            key=2, tokens=second[:30], start=0, pages=pages[1], sample=None,
            scoring=Scoring(row=0, targets=second[1:31]),
        ),
    ]  # fmt: skip
    one, answer, two = rig.run(steps)
    assert (len(one.scores), answer.scores, len(two.scores)) == (34, (), 30)
    assert (one.token is None, two.token is None) == (False, True)
    assert {len(score.top) for score in one.scores} == {2}
    assert {len(score.top) for score in two.scores} == {0}
    for scores, ids, begin in ((one.scores, first, 5), (two.scores, second, 0)):
        rows = reference(model, ids)[begin : begin + len(scores)]
        expected = rows.gather(-1, torch.from_numpy(ids[begin + 1 :][: len(scores), None]))
        assert [s.logprob for s in scores] == pytest.approx(expected[:, 0].tolist(), abs=1e-3)


def test_no_more_logits_than_a_slice_exist_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = prompt()
    whole = scores_of(rig, ids, PROMPT, wanted_from=10, top=1)
    made: list[int] = []
    head = rig.engine._model.logits

    def counted(hidden: torch.Tensor) -> torch.Tensor:
        made.append(len(hidden))
        return head(hidden)

    monkeypatch.setattr(rig.engine._model, "logits", counted)
    monkeypatch.setattr(scoring, "SLICE_ELEMENTS", 20 * rig.shape.vocab + 1)
    sliced = scores_of(rig, ids, PROMPT, wanted_from=10, top=1)
    assert made == [1, *[20] * 6, 19]  # the token that is sampled, then 139 targets
    assert [s.logprob for s in sliced] == pytest.approx([s.logprob for s in whole], abs=1e-5)


def test_a_chunk_that_asks_nothing_makes_no_logits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: torch.Tensor) -> torch.Tensor:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(rig.engine._model, "logits", never)
    ids = prompt()
    rig.run([SequenceStep(key=1, tokens=ids, start=0, pages=rig.pages_for(PROMPT), sample=None)])


def test_a_broken_model_fails_the_pass_instead_of_scoring(rig: Rig) -> None:
    hidden = torch.zeros(2, 8)
    asked = Scoring(row=0, targets=np.array([1, 2]))

    def head(states: torch.Tensor) -> torch.Tensor:
        return torch.full((len(states), 4), float("nan"))

    with pytest.raises(FloatingPointError, match="not finite"):
        scoring.score(hidden, [asked], head=head, vocab=4)
