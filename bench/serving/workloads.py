"""What clients do: one or several at a time in a closed loop, and long prompts among streams."""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import chain

from bench.serving.client import Answer, Ask, client, percentile, stream
from bench.serving.fleet import System


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of everything; times in seconds, lengths in tokens."""

    rounds: int  # of everything but single requests
    single_rounds: int  # one request of each system
    tries: int = 3  # rounds at most, as a multiple of those wanted
    quiet_cores: float = 0.25  # of others' work that a round may bear
    prompt_tokens: int = 256
    answer_tokens: int = 24
    clients: int = 4
    per_client: int = 3  # requests of each of several clients in a round
    streams: int = 3
    stream_prompt_tokens: int = 32
    stream_tokens: int = 240
    long_prompts: int = 4
    long_tokens: int = 1024
    long_every_s: float = 3.0
    long_answer_tokens: int = 2


@dataclass(slots=True, kw_only=True)
class Block:
    """What one workload gave in one round, or in all of them."""

    first_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0

    def add(self, other: "Block") -> None:
        self.first_s += other.first_s
        self.gaps_s += other.gaps_s
        self.tokens += other.tokens
        self.seconds += other.seconds

    def first_ms(self, q: float) -> float:
        return 1e3 * percentile(self.first_s, q)

    def gap_ms(self, q: float) -> float:
        return 1e3 * percentile(self.gaps_s, q)


async def one_at_a_time(system: System, plan: Plan, *, seed: int) -> Block:
    """One client, one request: systems take turns request by request."""
    return await _closed(system, plan, clients=1, each=1, seed=seed)


async def several(system: System, plan: Plan, *, seed: int) -> Block:
    """Several clients, each asking again as soon as it has its answer."""
    return await _closed(system, plan, clients=plan.clients, each=plan.per_client, seed=seed)


async def _closed(system: System, plan: Plan, *, clients: int, each: int, seed: int) -> Block:
    ask = Ask(prompt_tokens=plan.prompt_tokens, answer_tokens=plan.answer_tokens, seed=seed)
    clock = asyncio.get_running_loop()
    async with client() as http:

        async def one(number: int) -> list[Answer]:
            asks = [replace(ask, seed=seed + number * each + i) for i in range(each)]
            return [await stream(http, system.url, own) for own in asks]

        begun = clock.time()
        answers = list(chain.from_iterable(await asyncio.gather(*map(one, range(clients)))))
    return Block(
        first_s=[answer.first_s for answer in answers],
        gaps_s=[gap for answer in answers for gap in answer.gaps_s],
        tokens=plan.answer_tokens * len(answers),
        seconds=clock.time() - begun,
    )


async def interrupted(system: System, plan: Plan, *, seed: int) -> Block:
    """Streams that decode while long prompts arrive on a schedule, whatever the system does.

    ``first_s`` are of the long prompts, ``gaps_s`` of the streams; both systems do equal work.
    """
    clock = asyncio.get_running_loop()
    short = Ask(
        prompt_tokens=plan.stream_prompt_tokens, answer_tokens=plan.stream_tokens, seed=seed
    )
    long = Ask(
        prompt_tokens=plan.long_tokens, answer_tokens=plan.long_answer_tokens, seed=seed + 100
    )
    async with client() as http:

        async def arrive(index: int) -> Answer:
            await asyncio.sleep((index + 0.5) * plan.long_every_s)
            return await stream(http, system.url, replace(long, seed=long.seed + index))

        begun = clock.time()
        streams = [
            asyncio.create_task(stream(http, system.url, replace(short, seed=seed + i)))
            for i in range(plan.streams)
        ]
        arrivals = [asyncio.create_task(arrive(i)) for i in range(plan.long_prompts)]
        answers, late = await asyncio.gather(*streams), await asyncio.gather(*arrivals)
    return Block(
        first_s=[answer.first_s for answer in late],
        gaps_s=[gap for answer in answers for gap in answer.gaps_s],
        tokens=plan.stream_tokens * len(answers) + plan.long_answer_tokens * len(late),
        seconds=clock.time() - begun,
    )
