"""Clients of a pair: each leg posted straight to its worker, and what became of it."""

import asyncio
import itertools
import random
from dataclasses import dataclass
from typing import Any

import httpx

from pdcluster_api.names import Role
from tests.faults.gated_worker import MARK
from tests.faults.workers import Pair, Worker

WAIT_S = 60.0  # of the client; the limits that are asserted are shorter
_rooms = itertools.count(1000)
_dice = random.Random(5)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a prompt and the length of its greedy answer."""

    prompt: tuple[int, ...]
    new: int


def ask(tokens: int, *, new: int, marked: bool = False) -> Ask:
    """Made up; a marked one can be held by the gates of passes."""
    low, high = (MARK + 3, 500) if marked else (10, MARK)
    return Ask(tuple(_dice.randrange(low, high) for _ in range(tokens)), new)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client of one leg saw."""

    status: int  # 0: the connection broke
    tokens: tuple[int, ...]
    finish: str  # or the kind of the error
    at: float  # of the event loop's clock
    message: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.finish}"


class Legs:
    """A request under way on both workers."""

    def __init__(self, pair: Pair, asked: Ask, *, port: int = 0) -> None:
        self.asked = asked
        self.room = next(_rooms)
        self.rid = f"room-{self.room}"
        self._host, self._port = pair.prefill.address, port or pair.bootstrap
        self.tasks = {worker.role: self._post(worker) for worker in pair.workers}

    def _post(self, worker: Worker) -> "asyncio.Task[Answer]":
        body = {
            "input_ids": self.asked.prompt,
            "sampling_params": {
                "temperature": 0, "max_new_tokens": self.asked.new, "ignore_eos": True,
            },
            "rid": self.rid,
            "bootstrap_host": self._host,
            "bootstrap_port": self._port,
            "bootstrap_room": self.room,
        }  # fmt: skip
        return asyncio.create_task(_answer(f"{worker.url}/generate", body))

    async def answers(self) -> dict[Role, Answer]:
        """Of both legs; a leg whose client has left is absent."""
        await asyncio.wait(self.tasks.values())
        return {role: task.result() for role, task in self.tasks.items() if not task.cancelled()}


async def _answer(url: str, body: dict[str, Any]) -> Answer:
    clock = asyncio.get_running_loop().time
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            answer = await http.post(url, json=body)
            document = answer.json()
    except httpx.HTTPError as error:
        return Answer(0, (), "connection broken", clock(), str(error))
    if answer.status_code != 200:
        return Answer(
            answer.status_code, (), document["type"], clock(), message=document["message"]
        )
    finish = document["meta_info"]["finish_reason"]["type"]
    return Answer(200, tuple(document["output_ids"]), finish, clock())


async def abort(worker: Worker, rid: str) -> int:
    """By name; how many were found."""
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
        answer = await http.post(f"{worker.url}/abort_request", json={"rid": rid})
    return int(answer.json()["aborted"])
