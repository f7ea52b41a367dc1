"""Models that transformers computes, served by a prefill and a decode worker over NIXL.

Every architecture says what the library itself says; one of them always, the others in
`make test-full`, since a pair of workers takes 15 seconds to start and import transformers.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from pdcluster_api.launch import EngineSpec, LaunchSpec, ModelSpec
from pdcluster_api.names import PORT_BOOTSTRAP, Role
from pdcluster_api.schema import encode
from pdcluster_worker.models.source import prepare
from tests.e2e import rig
from tests.unit.engine.architectures import ARCHITECTURES, VOCAB, write

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

ALWAYS = ("gemma2",)  # windows, caps and a head size of its own
LENGTHS = (1, 16, 17, 90, 200)
CHUNK = 64
NEW = 24
TOLERANCE = 1e-3
REASON = "kv_lora_rank: latent KV (MLA) has pages of another shape and is not handed over yet"


def launch(role: Role, folder: Path, **engine: Any) -> LaunchSpec:
    return LaunchSpec(
        role=role,
        model=ModelSpec(source=str(folder), served_name="m"),
        engine=EngineSpec(threads=1, dtype="float32", kv_pages=128, chunk_tokens=CHUNK, **engine),
    )


def prompts() -> list[list[int]]:
    dice = random.Random(5)
    return [[dice.randrange(3, VOCAB) for _ in range(length)] for length in LENGTHS]


def load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def library_says(model: Any, ids: list[int]) -> tuple[list[int], list[float]]:
    """Greedy tokens and their logprobs, with the library's own cache."""
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=NEW,
            do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
    tokens: list[int] = output.sequences[0, len(ids) :].tolist()
    rows = [logits[0].log_softmax(-1) for logits in output.logits]
    return tokens, [float(row[token]) for row, token in zip(rows, tokens, strict=True)]


async def hand_off(prefill: str, decode: str, ids: list[int], room: int) -> list[Any]:
    """Both legs of one request; decode's ``[logprob, token, text]`` entries."""
    host = prefill.split("/")[2].rpartition(":")[0]
    body = {
        "input_ids": ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True},
        "return_logprob": True,
        "bootstrap_host": host,
        "bootstrap_port": PORT_BOOTSTRAP,
        "bootstrap_room": room,
    }
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        answers = await asyncio.gather(
            *(client.post(f"{url}/generate", json=body) for url in (prefill, decode))
        )
    assert [answer.status_code for answer in answers] == [200, 200], answers[1].text
    return list(answers[1].json()["meta_info"]["output_token_logprobs"])


@pytest.mark.parametrize(
    "name",
    [
        name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full)
        for name in ARCHITECTURES
    ],
)
async def test_disaggregated_equals_the_library(name: str, tmp_path: Path) -> None:
    folder = write(name, tmp_path / name)
    async with contextlib.AsyncExitStack() as stack:
        prefill, decode = await asyncio.gather(
            *(
                stack.enter_async_context(rig.worker(launch(role, folder), tmp_path))
                for role in (Role.PREFILL, Role.DECODE)
            )
        )
        answers = await asyncio.gather(
            *(
                hand_off(prefill.url, decode.url, ids, room)
                for room, ids in enumerate(prompts(), start=1)
            )
        )
        for worker in (prefill, decode):
            status = await rig.until_initial(worker.url.split("/")[2].rpartition(":")[0])
            assert status["handoffs"] == len(LENGTHS)
    model = load(folder)
    for ids, answer in zip(prompts(), answers, strict=True):
        tokens, logprobs = library_says(model, ids)
        assert [entry[1] for entry in answer] == tokens
        assert [entry[0] for entry in answer] == pytest.approx(logprobs, abs=TOLERANCE)


async def test_a_model_that_cannot_be_handed_over_ends_the_worker_with_the_reason(
    tmp_path: Path,
) -> None:
    folder = prepare("tiny://llama?seed=0", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"kv_lora_rank": 512}))
    env = {
        **os.environ,
        "PDCLUSTER_LAUNCH": json.dumps(encode(launch(Role.PREFILL, folder))),
        "PDCLUSTER_POD_IP": "127.79.251.1",
        "PDCLUSTER_RUN_DIR": str(tmp_path),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pdcluster_worker", env=env, stderr=PIPE, stdout=DEVNULL
    )
    try:
        async with asyncio.timeout(rig.START_S):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode != 0
    assert REASON in errors.decode()
