"""Models that transformers computes over our pages, against the same models with its own cache."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdcluster_worker.core.geometry import geometry_of
from pdcluster_worker.core.ports import (
    PageIds,
    SampleParams,
    Score,
    Scoring,
    SequenceStep,
    StepResult,
)
from pdcluster_worker.engine import paged_attention
from pdcluster_worker.engine.attention import PLAIN
from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from tests.unit.engine.architectures import ARCHITECTURES, CONTEXT, VOCAB, write
from tests.unit.engine.rig import Ids, Rig, step

pytestmark = pytest.mark.model

pytest.importorskip("transformers")

NEW = 24
TOLERANCE = 1e-3
LENGTHS = (90, 23)  # beyond the sliding window, and one short of it, which the answer crosses
LOGPROBS = SampleParams(logprobs=2)


@dataclass(frozen=True, slots=True)
class Case:
    """A model folder and what the library itself says of it."""

    name: str
    folder: Path
    reference: Any

    def answers(self, ids: Ids) -> tuple[list[int], list[float]]:
        """Greedy tokens and their logprobs, by the library's own loop and cache."""
        with torch.inference_mode():
            output = self.reference.generate(
                torch.from_numpy(ids)[None], attention_mask=torch.ones(1, len(ids)),
                max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, output_logits=True,
                return_dict_in_generate=True, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        tokens: list[int] = output.sequences[0, len(ids) :].tolist()
        rows = [logits[0].log_softmax(-1) for logits in output.logits]
        return tokens, [float(row[token]) for row, token in zip(rows, tokens, strict=True)]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return made(request.param, tmp_path_factory.mktemp(request.param))


def made(name: str, folder: Path) -> Case:
    from transformers import AutoModelForCausalLM

    write(name, folder)
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return Case(name, folder, reference.eval())


@pytest.fixture
def rigs(case: Case) -> Iterator[tuple[Rig, Rig]]:
    both = (Rig(case.folder), Rig(case.folder))
    yield both
    for rig in both:
        rig.engine.close()


def prompts() -> list[Ids]:
    draw = np.random.default_rng(11)
    return [draw.integers(3, VOCAB, count) for count in LENGTHS]


def prefill(rig: Rig, ids: Ids, pages: PageIds, *, sizes: Sequence[int]) -> StepResult:
    """In chunks of ``sizes``, the last as long as what is left."""
    start = 0
    for size in sizes:
        rig.run([step(0, ids[start : start + size], start, pages, None)])
        start += size
    return rig.run([step(0, ids[start:], start, pages, LOGPROBS)])[0]


def decode(rig: Rig, first: StepResult, pages: PageIds, *, at: int) -> list[StepResult]:
    results = [first]
    for position in range(at, at + NEW - 1):
        token = np.array([results[-1].token])
        results += rig.run([step(0, token, position, pages, LOGPROBS)])
    return results


def same(results: Sequence[StepResult], expected: tuple[list[int], list[float]]) -> None:
    tokens, logprobs = expected
    assert [result.token for result in results] == tokens
    assert [result.logprob for result in results] == pytest.approx(logprobs, abs=TOLERANCE)


def test_two_requests_in_chunks_and_batches_say_what_the_library_says(
    case: Case, rigs: tuple[Rig, Rig]
) -> None:
    """The second joins while the first decodes; its chunks share passes with those steps."""
    rig, _ = rigs
    one, two = prompts()
    pages = [rig.pages_for(len(ids) + NEW) for ids in (one, two)]
    found = [[prefill(rig, one, pages[0], sizes=(7, 1, 33))], []]
    cuts = iter([(0, 9), (9, 22), (22, 23)])
    while min(len(results) for results in found) < NEW:
        batch = []
        if len(found[0]) < NEW:
            last = np.array([found[0][-1].token])
            batch.append(step(0, last, len(one) + len(found[0]) - 1, pages[0], LOGPROBS))
        if (cut := next(cuts, None)) is not None:
            sample = LOGPROBS if cut[1] == len(two) else None
            batch.append(step(1, two[slice(*cut)], cut[0], pages[1], sample))
        elif len(found[1]) < NEW:
            last = np.array([found[1][-1].token])
            batch.append(step(1, last, len(two) + len(found[1]) - 1, pages[1], LOGPROBS))
        for result in rig.run(batch):
            if result.token is not None:
                found[result.key].append(result)
    for results, ids in zip(found, (one, two), strict=True):
        same(results, case.answers(ids))


def test_pages_copied_into_another_engine_continue_the_same(
    case: Case, rigs: tuple[Rig, Rig]
) -> None:
    """What a hand-off moves is all that decode needs."""
    ours, theirs = rigs
    for ids in prompts():
        source = ours.pages_for(len(ids))
        target = theirs.pages_for(len(ids) + NEW)
        first = prefill(ours, ids, source, sizes=(16, 5))
        theirs.pool[target[: len(source)]] = ours.pool[source]
        same(decode(theirs, first, target, at=len(ids)), case.answers(ids))


@pytest.mark.parametrize(("count", "size"), [(90, 30), (400, 300)])
def test_prompts_are_scored(case: Case, rigs: tuple[Rig, Rig], count: int, size: int) -> None:
    """Every row of a prompt, also of one that takes several tiles of attention in a chunk."""
    rig, _ = rigs
    ids = np.random.default_rng(count).integers(3, VOCAB, count)
    with torch.inference_mode():
        expected = case.reference(torch.from_numpy(ids)[None]).logits[0].log_softmax(-1)
    pages = rig.pages_for(count)
    found: list[Score] = []
    for start in range(0, count, size):
        targets = ids[start + 1 : start + size + 1]
        asked = SequenceStep(
            key=0, tokens=ids[start : start + size], start=start, pages=pages, sample=None,
            scoring=Scoring(row=0, targets=targets),
        )  # fmt: skip
        found += rig.run([asked])[0].scores
    rows = expected[:-1].gather(-1, torch.from_numpy(ids[1:, None]))[:, 0]
    assert [score.logprob for score in found] == pytest.approx(rows.tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["mistral", "gemma2", "granite", "phi3"])
def test_window_cap_and_scale_decide(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the models above would notice an attention that ignores them."""
    rig = Rig(write(name, tmp_path / name))
    ids = prompts()[0]
    right = rig.engine.debug_logits([step(0, ids, 0, rig.pages_for(90))])
    original = paged_attention.PagedAttention.attend

    def careless(self: Any, layer: int, **given: Any) -> torch.Tensor:
        return original(self, layer, **{**given, "rule": PLAIN})

    monkeypatch.setattr(paged_attention.PagedAttention, "attend", careless)
    wrong = rig.engine.debug_logits([step(0, ids, 0, rig.pages_for(90))])
    rig.engine.close()
    assert float((right - wrong).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize(
    ("name", "kv_heads", "head_dim"), [("qwen3", 2, 24), ("gemma2", 2, 24), ("gpt2", 4, 16)]
)
def test_the_geometry_is_what_the_attention_writes(
    name: str, kv_heads: int, head_dim: int, tmp_path: Path
) -> None:
    """Also where config.json spells it otherwise or where it is not hidden / heads."""
    rig = Rig(write(name, tmp_path / name))
    shape = rig.shape
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (3, kv_heads, head_dim)
    assert (shape.vocab, shape.context_tokens, shape.eos_token_ids) == (VOCAB, CONTEXT, (2,))
    pages = rig.pages_for(16)
    rig.pool.zero_()
    rig.run([step(0, np.arange(3, 19), 0, pages)])
    assert bool((rig.pool[pages[0]] != 0).any(-1).all())
    rig.engine.close()


def test_every_architecture_and_every_weight_has_its_own_fingerprint(tmp_path: Path) -> None:
    rigs = [Rig(write(name, tmp_path / name), pages=1) for name in ("qwen2", "phi3")]
    rigs.append(Rig(write("qwen2", tmp_path / "other", seed=1), pages=1))
    rigs.append(Rig(write("qwen2", tmp_path / "same"), pages=1))
    prints = [geometry_of(rig.shape, page_tokens=16).fingerprint() for rig in rigs]
    for rig in rigs:
        rig.engine.close()
    assert len(set(prints)) == 3
    assert prints[0] == prints[3]


def test_penalties_and_drawing_are_those_of_every_model(tmp_path: Path) -> None:
    """They are decided on logits, so a ban must move the choice to the next best token."""
    rig = Rig(write("qwen3", tmp_path / "m"))
    ids = prompts()[0]
    pages = rig.pages_for(91)
    (free,) = rig.run([step(0, ids, 0, pages, SampleParams(logprobs=2))])
    assert free.token is not None
    banned = SampleParams(banned=(free.token,))
    drawn = SampleParams(temperature=1.0, seed=7)
    (second,) = rig.run([step(0, ids[89:], 89, pages, banned)])
    assert second.token == free.top[1][0]
    again = {rig.run([step(0, ids[89:], 89, pages, drawn)])[0].token for _ in range(3)}
    rig.engine.close()
    assert len(again) == 1


def test_an_absent_tensor_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = write("qwen3", tmp_path / "m")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        Rig(folder)


def test_a_model_whose_first_pass_fails_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, layer: int, **_: Any) -> torch.Tensor:
        raise RuntimeError("no such shape")

    monkeypatch.setattr(paged_attention.PagedAttention, "attend", broken)
    with pytest.raises(UnsupportedModel, match="a first pass failed: RuntimeError: no such shape"):
        Rig(write("qwen3", tmp_path / "m"))


@pytest.mark.parametrize("extra", ["s_aux", "position_bias"])
def test_attention_with_more_than_we_compute_is_an_error(extra: str) -> None:
    from pdcluster_worker.engine.fallback import _attend

    part = torch.zeros(1, 1, 1, 1)
    with pytest.raises(ValueError, match=f"attention with {extra} is not computed"):
        _attend(torch.nn.Module(), part, part, part, None, **{extra: part})
    with pytest.raises(ValueError, match="attention with a mask is not computed"):
        _attend(torch.nn.Module(), part, part, part, part)


def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    """With a window and a cap, since 16-bit decoding has a path of its own."""
    from dataclasses import replace

    from pdcluster_worker.core.clock import SystemClock
    from pdcluster_worker.engine.torch_engine import TorchEngine
    from pdcluster_worker.models.progress import silent

    for name in ("mistral", "gemma2"):
        rig = Rig(write(name, tmp_path / name))
        half = TorchEngine(
            tmp_path / name, replace(rig.spec, dtype="bfloat16"), pool=rig.pool.bfloat16(),
            clock=SystemClock(), wake=None, progress=silent,
        )  # fmt: skip
        ids, pages = prompts()[0], rig.pages_for(90)
        for new, start in ((ids[:50], 0), (ids[50:89], 50), (ids[89:], 89)):
            exact = rig.engine.debug_logits([step(0, new, start, pages)])
            rough = half.debug_logits([step(0, new, start, pages)])
            assert float((exact - rough).abs().max()) < 0.5
        rig.engine.close()
        half.close()


def test_names_without_the_base_in_front_are_found(tmp_path: Path) -> None:
    """GPT-2's published files were saved from the base: `h.0...` and not `transformer.h.0...`."""
    from safetensors.torch import load_file, save_file

    whole, bare = write("gpt2", tmp_path / "whole"), write("gpt2", tmp_path / "bare")
    tensors = load_file(bare / "model.safetensors")
    assert all(name.startswith("transformer.") for name in tensors)
    stripped = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file(stripped, bare / "model.safetensors", metadata={"format": "pt"})
    same_logits(whole, bare)


def test_code_that_comes_with_a_model_is_not_asked_for(tmp_path: Path) -> None:
    """Phi-3's published files name code of their own; the library has its class."""
    plain, coded = write("phi3", tmp_path / "plain"), write("phi3", tmp_path / "coded")
    names = {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    }
    config = json.loads((coded / "config.json").read_text()) | {"auto_map": names}
    (coded / "config.json").write_text(json.dumps(config))
    same_logits(plain, coded)


def same_logits(*folders: Path) -> None:
    ids, found = prompts()[1], []
    for folder in folders:
        rig = Rig(folder)
        found.append(rig.engine.debug_logits([step(0, ids, 0, rig.pages_for(len(ids)))]))
        rig.engine.close()
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("bias", [True, False])
def test_packed_linear_layers_say_the_same_and_other_layers_stay(bias: bool) -> None:
    from torch import nn

    from pdcluster_worker.engine.linear import PackedLinear, pack_linears

    class Special(nn.Linear):
        """Of a subclass nobody knows what its forward does."""

    torch.manual_seed(3)
    inner = nn.Sequential(nn.Linear(8, 5, bias=bias), Special(5, 5))
    outer = nn.Sequential(inner, nn.LayerNorm(5), nn.Linear(5, 3, bias=bias))
    outer.requires_grad_(False)
    x = torch.randn(2, 4, 8)
    expected = outer(x)
    pack_linears(outer)
    kinds = [type(layer) for layer in (*inner, *outer[1:])]
    assert kinds == [PackedLinear, Special, nn.LayerNorm, PackedLinear]
    torch.testing.assert_close(outer(x), expected, atol=1e-5, rtol=0)
