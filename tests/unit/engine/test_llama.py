"""The runner against transformers, on the same weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdcluster_worker.engine.config import read_config
from pdcluster_worker.models.source import prepare
from tests.unit.engine.rig import Ids, Rig, chunks, step

ANSWER_TOKENS = 32
NEAR_TIE = 1e-4
Reference = Callable[[Ids], torch.Tensor]


@pytest.fixture(scope="module")
def load() -> Callable[[Path], Any]:
    transformers = pytest.importorskip("transformers")

    def from_folder(folder: Path) -> Any:
        return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    return from_folder


@pytest.fixture(scope="module")
def reference(load: Callable[[Path], Any], tiny: Path) -> Reference:
    model = load(tiny)

    def logits(ids: Ids) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = model(torch.from_numpy(ids)[None]).logits[0]
        return found

    return logits


def prompts() -> list[Ids]:
    draw = np.random.default_rng(1)
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 300, *draw.integers(1, 300, 9)]
    return [draw.integers(3, 512, n) for n in lengths]


def test_logits_equal_those_of_transformers_for_every_chunking(
    rig: Rig, reference: Reference
) -> None:
    draw = np.random.default_rng(2)
    for ids in prompts():
        pages = rig.pages_for(len(ids))
        expected = reference(ids)
        for start, end in chunks(draw, len(ids)):
            found = rig.engine.debug_logits([step(0, ids[start:end], start, pages)])
            torch.testing.assert_close(found[0], expected[end - 1], atol=1e-3, rtol=0)
        rig.free = np.concatenate((rig.free, pages))


def test_greedy_answers_in_mixed_batches_equal_those_of_transformers(
    tiny: Path, reference: Reference
) -> None:
    """All prompts at once: some still in chunks while others decode."""
    rig = Rig(tiny, pages=300)
    draw = np.random.default_rng(3)
    texts = dict(enumerate(prompts()))
    asked = {key: len(ids) for key, ids in texts.items()}
    done = dict.fromkeys(texts, 0)
    pages = {key: rig.pages_for(len(ids) + ANSWER_TOKENS) for key, ids in texts.items()}
    while live := [k for k in texts if len(texts[k]) < asked[k] + ANSWER_TOKENS]:
        batch = []
        for key in live:
            left = len(texts[key]) - done[key]
            count = left if left == 1 else int(draw.integers(1, left + 1))
            new = texts[key][done[key] : done[key] + count]
            last = done[key] + count == len(texts[key])
            batch.append(
                step(key, new, done[key], pages[key])
                if last
                else step(key, new, done[key], pages[key], None)
            )
            done[key] += count
        for result in rig.run(batch):
            if result.token is not None:
                texts[result.key] = np.append(texts[result.key], result.token)
    rig.engine.close()
    skipped = 0
    for key, ids in texts.items():
        best = reference(ids).topk(2, -1)
        for at in range(asked[key] - 1, len(ids) - 1):
            if float(best.values[at, 0] - best.values[at, 1]) < NEAR_TIE:
                skipped += 1
                break
            assert ids[at + 1] == best.indices[at, 0], (key, at)
    assert skipped <= 1, "too many near ties to prove anything"


def test_rope_scaling_of_llama_3(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    import json

    folder = prepare("tiny://llama?seed=1&layers=2&tied=1", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["rope_scaling"] = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    assert read_config(folder).rope.kind == "llama3"
    rig = Rig(folder)
    ids = np.random.default_rng(4).integers(3, 512, 300)
    found = rig.engine.debug_logits([step(0, ids, 0, rig.pages_for(300))])
    rig.engine.close()
    with torch.inference_mode():
        expected = load(folder)(torch.from_numpy(ids)[None]).logits[0, -1]
    torch.testing.assert_close(found[0], expected, atol=1e-3, rtol=0)


def test_a_batch_does_not_change_a_sequence(rig: Rig) -> None:
    """Padding, masks and splits into groups: alone or among others, the same tokens."""
    draw = np.random.default_rng(6)
    texts = [draw.integers(3, 512, n) for n in (1, 17, 300, 40, 41)]
    pages = [rig.pages_for(len(t) + 1) for t in texts]
    first = rig.run([step(k, t, 0, pages[k]) for k, t in enumerate(texts)])
    nexts = [step(k, np.array([r.token]), len(texts[k]), pages[k]) for k, r in enumerate(first)]
    alone = torch.cat([rig.engine.debug_logits([one]) for one in nexts])
    together = rig.engine.debug_logits(nexts)
    torch.testing.assert_close(alone, together, atol=1e-4, rtol=0)


def test_other_pages_stay_untouched(rig: Rig) -> None:
    pages = rig.pages_for(40)
    others = np.setdiff1d(np.arange(256), pages)
    before = rig.pool[others].clone()
    rig.run([step(0, np.arange(3, 43), 0, pages)])
    assert torch.equal(rig.pool[others], before)


def test_rows_below_start_are_not_rewritten(rig: Rig) -> None:
    pages = rig.pages_for(40)
    ids = np.arange(3, 43)
    rig.run([step(0, ids[:20], 0, pages)])
    first, shared = rig.pool[pages[0]].clone(), rig.pool[pages[1]][..., :4, :].clone()
    rig.run([step(0, ids[20:], 20, pages)])
    assert torch.equal(rig.pool[pages[0]], first)
    assert torch.equal(rig.pool[pages[1]][..., :4, :], shared)


def test_bfloat16_is_close_to_float32(tiny: Path) -> None:
    from dataclasses import replace

    from pdcluster_worker.core.clock import SystemClock
    from pdcluster_worker.engine.torch_engine import TorchEngine
    from pdcluster_worker.models.progress import silent

    rig = Rig(tiny)
    half = TorchEngine(
        tiny, replace(rig.spec, dtype="bfloat16"), pool=rig.pool.bfloat16(), clock=SystemClock(),
        wake=None, progress=silent,
    )  # fmt: skip
    ids, pages = np.random.default_rng(7).integers(3, 512, 200), rig.pages_for(201)
    for new, start in ((ids[:90], 0), (ids[90:199], 90), (ids[199:], 199)):
        exact = rig.engine.debug_logits([step(0, new, start, pages)])
        rough = half.debug_logits([step(0, new, start, pages)])
        assert float((exact - rough).abs().max()) < 0.2
    rig.engine.close()
    half.close()
