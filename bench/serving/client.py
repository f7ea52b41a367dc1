"""One streamed request, and when each piece of its answer came."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
import numpy as np

TIMEOUT_S = 120.0  # of silence
VOCABULARY = 500  # every model used here has more tokens
FIRST_TOKEN = 3  # below are special ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A prompt of random tokens, so that no prefix is shared, and an answer of fixed length."""

    prompt_tokens: int
    answer_tokens: int
    seed: int

    def body(self) -> dict[str, Any]:
        """Return the request for /generate."""
        draw = np.random.default_rng(self.seed)
        return {
            "model": "m",
            "input_ids": draw.integers(FIRST_TOKEN, VOCABULARY, self.prompt_tokens).tolist(),
            "stream": True,
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": self.answer_tokens,
                "ignore_eos": True,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Seconds of one answer, as the client saw them."""

    first_s: float  # from sending to the first token
    total_s: float
    gaps_s: tuple[float, ...]  # between deliveries; one token each unless they were late


async def stream(http: httpx.AsyncClient, url: str, ask: Ask) -> Answer:
    """Ask; RuntimeError when the answer is not complete.

    Lines are kept and read at the end: reading them meanwhile would delay other streams' clocks.
    """
    clock = asyncio.get_running_loop()
    content = json.dumps(ask.body())
    begun, seen = clock.time(), list[tuple[float, str]]()
    headers = {"content-type": "application/json"}
    async with http.stream("POST", f"{url}/generate", content=content, headers=headers) as answer:
        if answer.status_code != 200:
            text = (await answer.aread()).decode(errors="replace")
            raise RuntimeError(f"{url} answered {answer.status_code}: {text[:300]}")
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                seen.append((clock.time(), line))
    last = json.loads(seen[-1][1].removeprefix("data: ")) if seen else {}
    if last.get("meta_info", {}).get("completion_tokens") != ask.answer_tokens:
        raise RuntimeError(f"{url} broke off: {str(last)[:300]}")
    times = [at for at, _ in seen]
    return Answer(
        first_s=times[0] - begun,
        total_s=times[-1] - begun,
        gaps_s=tuple(after - before for before, after in pairwise(times)),
    )


def client() -> httpx.AsyncClient:
    """For many requests to few addresses, with connections kept."""
    return httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S)


def percentile(values: Sequence[float], q: float) -> float:
    """Linear between neighbours; ``q`` in 0..100."""
    return float(np.percentile(np.asarray(values), q))
