"""Logprobs of the prompt (F18): router + prefill + decode say what one aggregated worker says."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import PORT_BOOTSTRAP, Role
from pdcluster_operator.local.session import Session
from tests.e2e import http_rig, rig

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

TOLERANCE = 1e-3
CHUNK = 256  # of `http_rig.document`; the aggregated worker cuts elsewhere
TOP = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster, and the yardstick beside it."""

    session: Session
    aggregated: str  # address


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setup]:
    state = tmp_path_factory.mktemp("scores")
    launch = LaunchSpec(
        role=Role.AGGREGATED,
        model=ModelSpec(source=http_rig.TINY, served_name="m"),
        engine=EngineSpec(threads=1, dtype="float32", chunk_tokens=100),
    )
    async with (
        rig.cluster(http_rig.document(), state) as session,
        rig.worker(launch, state / "agg") as aggregated,
    ):
        yield Setup(session, aggregated.url)


def prompt(count: int) -> list[int]:
    dice = random.Random(count)
    return [dice.randrange(10, 250) for _ in range(count)]


def body(count: int, start: int, **more: Any) -> dict[str, Any]:
    return {
        "input_ids": prompt(count),
        "sampling_params": {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True},
        "return_logprob": True,
        "logprob_start_len": start,
        "model": "m",
        **more,
    }


async def meta(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        answer = await client.post(f"{url}/generate", json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["meta_info"])


def same(found: list[Any], expected: list[Any]) -> None:
    """Equal tokens, and logprobs that differ by rounding only."""
    assert [entry[1] for entry in found] == [entry[1] for entry in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[0] == (None if other[0] is None else pytest.approx(other[0], abs=TOLERANCE))


@pytest.mark.parametrize(
    ("count", "start"),
    [
        *((1, 0), (2, 0), (2, 1), (CHUNK, 0), (CHUNK + 1, 0), (CHUNK + 1, CHUNK - 1)),
        *((CHUNK + 1, CHUNK), (700, 0), (700, 300), (700, 511), (700, 699)),
    ],
)
async def test_through_the_router(setup: Setup, count: int, start: int) -> None:
    asked = body(count, start)
    apart, together = await asyncio.gather(
        meta(setup.session.endpoint, asked), meta(setup.aggregated, asked)
    )
    assert len(apart["input_token_logprobs"]) == count - start
    assert [entry[1] for entry in apart["input_token_logprobs"]] == prompt(count)[start:]
    same(apart["input_token_logprobs"], together["input_token_logprobs"])
    same(apart["output_token_logprobs"], together["output_token_logprobs"])


async def test_top_logprobs_are_in_the_answer_of_prefill(setup: Setup) -> None:
    """No router merges them (docs/http-api.md), so both legs are asked here."""
    asked = body(600, 200, top_logprobs_num=TOP)
    host = http_rig.address(setup.session, "prefill")
    leg = {"bootstrap_host": host, "bootstrap_port": PORT_BOOTSTRAP, "bootstrap_room": 77}
    prefill, decode, together = await asyncio.gather(
        meta(http_rig.url(setup.session, "prefill"), asked | leg),
        meta(http_rig.url(setup.session, "decode"), asked | leg),
        meta(setup.aggregated, asked),
    )
    assert decode["input_top_logprobs"] == []
    found, expected = prefill["input_top_logprobs"], together["input_top_logprobs"]
    assert (found[0], expected[0], len(found), len(expected)) == (None, None, 400, 400)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert len(ours) == TOP
        values = [value for value, _, _ in theirs]
        assert [value for value, _, _ in ours] == pytest.approx(values, abs=TOLERANCE)
    for entry, best in zip(prefill["input_token_logprobs"][1:], found[1:], strict=True):
        assert entry[0] <= best[0][0] + TOLERANCE
    same(prefill["input_token_logprobs"], together["input_token_logprobs"])


async def test_a_completion_that_echoes_says_what_generate_says(setup: Setup) -> None:
    expected = await meta(setup.aggregated, body(300, 0, top_logprobs_num=TOP))
    transport = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=60.0)
    async with openai.AsyncOpenAI(
        base_url=f"{setup.aggregated}/v1", api_key="none", http_client=transport, max_retries=0
    ) as client:
        answer = await client.completions.create(
            model="m", prompt=prompt(300), echo=True, logprobs=TOP, max_tokens=4, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    entries = expected["input_token_logprobs"] + expected["output_token_logprobs"]
    first, *others = list[Any](logprobs.token_logprobs)
    assert first is None
    assert len(logprobs.top_logprobs) == len(entries) == 304
    assert others == pytest.approx([entry[0] for entry in entries[1:]], abs=TOLERANCE)


async def test_pages_are_free_again(setup: Setup) -> None:
    await meta(setup.session.endpoint, body(300, 0))
    await http_rig.initial(setup.session)
