"""/generate, in SGLang's shape: text is cumulative in a stream, meta_info tells the rest.

One prompt with one sample is answered by an object, anything else by a list, and its events carry
an ``index``.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from starlette.types import ASGIApp

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest, WorkerError
from pdcluster_worker.frontend.errors import Api, error_body, json_response
from pdcluster_worker.frontend.events import DONE, EventStream, event
from pdcluster_worker.frontend.fields import GENERATE_FIELDS, GENERATE_LISTS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.generation import Generation, Piece, TokenInfo
from pdcluster_worker.frontend.merge import Happening, first_of, merged
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import read_params, spread
from pdcluster_worker.frontend.text import Tokenizer

DEFAULTS = Params(max_new_tokens=128)


async def generate(inquiry: Inquiry) -> ASGIApp:
    """POST or PUT /generate."""
    items, listed = read_items(inquiry.object())
    generations = await inquiry.start(items)
    samples = items[0].n
    answers = [
        NativeAnswer(inquiry, items[index // samples], generation)
        for index, generation in enumerate(generations)
    ]
    listed = listed or samples > 1
    happenings = merged(generations)
    if items[0].stream:
        first = await first_of(happenings)
        return EventStream(_events(answers, happenings, first=first, listed=listed))
    async with contextlib.aclosing(happenings):
        async for happening in happenings:
            if isinstance(happening.outcome, WorkerError):
                raise happening.outcome
            answers[happening.index].take(happening.outcome)
    results = [answer.body() for answer in answers]
    return json_response(results if listed else results[0])


def read_items(body: dict[str, Any]) -> tuple[list[Params], bool]:
    """One item for each prompt, and whether they were given as a list."""
    name = "text" if body.get("text") is not None else "input_ids"
    given = body.get(name)
    if given is None:
        raise BadRequest("text: missing, and so is input_ids; one is needed", field="text")
    whole = read_params({name: given}, GENERATE_FIELDS)
    if not whole.prompts:
        raise BadRequest(f"{name}: the list of prompts is empty", field=name)
    listed = isinstance(given, list) and given != [] and not isinstance(given[0], int)
    count = len(whole.prompts)
    bodies = spread(body | {name: None}, count=count, names=GENERATE_LISTS)
    items = [
        msgspec.structs.replace(
            read_params(own, GENERATE_FIELDS, defaults=DEFAULTS), prompts=(prompt,)
        )
        for own, prompt in zip(bodies, whole.prompts, strict=True)
    ]
    return [msgspec.structs.replace(item, names=item.names | whole.names) for item in items], listed


async def _events(
    answers: list["NativeAnswer"],
    happenings: AsyncGenerator[Happening, None],
    *,
    first: Happening,
    listed: bool,
) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(happenings):
        yield _event(answers, first, listed=listed)
        async for happening in happenings:
            yield _event(answers, happening, listed=listed)
    yield DONE


def _event(answers: list["NativeAnswer"], happening: Happening, *, listed: bool) -> bytes:
    place = {"index": happening.index} if listed else {}
    if isinstance(happening.outcome, WorkerError):
        body = error_body(happening.outcome, Api.NATIVE)
        return event(body | {"error": body} | place)  # clients look for either
    answer = answers[happening.index]
    answer.take(happening.outcome)
    return event(answer.body() | place)


class NativeAnswer:
    """Gathers one answer and writes it."""

    def __init__(self, inquiry: Inquiry, params: Params, generation: Generation) -> None:
        self.generation = generation
        self._params = params
        self._tokenizer = inquiry.frontend.tokenizer
        self._is_prefill = inquiry.frontend.settings.launch.role is Role.PREFILL
        self._text: list[str] = []
        self._tokens: list[TokenInfo] = []

    def take(self, piece: Piece) -> None:
        self._text.append(piece.text)
        self._tokens += piece.tokens

    def body(self) -> dict[str, Any]:
        """Everything so far."""
        generation = self.generation
        finish_reason = self._finish_reason()
        meta: dict[str, Any] = {
            "id": generation.rid,
            "finish_reason": finish_reason,
            "prompt_tokens": generation.prompt_tokens,
            "completion_tokens": generation.completion_tokens,
            "cached_tokens": generation.cached_tokens,
            "weight_version": "default",
            "e2e_latency": generation.elapsed_s(),
        }
        if self._params.logprobs:
            prompt = generation.prompt or ()
            meta |= _logprobs(self._tokens, prompt, params=self._params, tokenizer=self._tokenizer)
        result: dict[str, Any] = {
            "text": "".join(self._text),
            "output_ids": [token.id for token in self._tokens],
            "meta_info": meta,
        }
        if self._params.return_handoff and finish_reason is not None:
            result["pdcluster"] = {"handoff": generation.handoff}
        return result

    def _finish_reason(self) -> dict[str, Any] | None:
        """None while the answer goes on."""
        finish = self.generation.finish
        if finish is None:
            return None
        if finish.reason == "length":
            # A prefill's one token is not the answer's length.
            length = 0 if self._is_prefill else self.generation.completion_tokens
            return {"type": "length", "length": length}
        if finish.reason == "abort":  # asked for by somebody: an answer, not a failure
            return {"type": "abort", "message": finish.message, "status_code": None}
        return {"type": finish.reason, "matched": finish.matched}


def _logprobs(
    tokens: Sequence[TokenInfo],
    prompt: Sequence[TokenInfo],
    *,
    params: Params,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    def entry(token: int, logprob: float | None) -> tuple[float | None, int, str | None]:
        text = tokenizer.token_text(token) if params.text_in_logprobs else None
        return (logprob, token, text)

    result: dict[str, Any] = {
        "input_token_logprobs": [entry(token.id, token.logprob) for token in prompt],
        "output_token_logprobs": [entry(token.id, token.logprob) for token in tokens],
    }

    def best(token: TokenInfo) -> list[Any] | None:
        given = [entry(other, logprob) for other, logprob in token.top]
        return given if token.logprob is not None else None  # the first has nothing before it

    if params.top_logprobs:
        result["input_top_logprobs"] = [best(token) for token in prompt]
        result["output_top_logprobs"] = [best(token) for token in tokens]
    return result
