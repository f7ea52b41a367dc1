"""Router + prefill + decode over NIXL says exactly what one aggregated worker and transformers say."""

import asyncio
import random
from pathlib import Path

import pytest

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import Role
from tests.e2e import rig

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

TINY = "tiny://llama?seed=0"
CHUNK = 512
PAGE = 16
NEW = 16


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


@pytest.mark.parametrize("source", [TINY], ids=["tiny"])
async def test_disaggregated_equals_aggregated(source: str, tmp_path: Path) -> None:
    asked = prompts(vocab=250)
    assert len(asked) == 60
    spec = EngineSpec(threads=1, dtype="float32")
    launch = LaunchSpec(
        role=Role.AGGREGATED, model=ModelSpec(source=source, served_name="m"), engine=spec
    )
    async with rig.cluster(rig.manifest(source=source), tmp_path) as session:
        gate = asyncio.Semaphore(4)

        async def one(url: str, prompt: list[int]) -> list[int]:
            async with gate:
                answer = await rig.generate(url, prompt, max_new=NEW)
            assert answer["status"] == 200, answer
            return rig.tokens_of(answer)

        apart = await asyncio.gather(*(one(session.endpoint, p) for p in asked))
        async with rig.worker(launch, tmp_path / "agg") as aggregated:
            together = await asyncio.gather(*(one(aggregated.url, p) for p in asked))
        for role in ("prefill", "decode"):
            status = await rig.until_initial(rig.pods(session, role)[0]["ip"])
            assert status["handoffs"] >= len(asked)
    assert [len(tokens) for tokens in apart] == [NEW] * len(asked)
    assert apart == together
