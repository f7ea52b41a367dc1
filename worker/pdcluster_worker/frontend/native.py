"""/generate, in SGLang's shape: text is cumulative in a stream, meta_info tells the rest."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.types import ASGIApp

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import Aborted, BadRequest, WorkerError
from pdcluster_worker.frontend.errors import Api, error_body, json_response
from pdcluster_worker.frontend.events import DONE, EventStream, event
from pdcluster_worker.frontend.fields import GENERATE_FIELDS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.generation import Generation, Piece, TokenInfo
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import parse_object, read_params
from pdcluster_worker.frontend.text import Tokenizer

_DEFAULTS = Params(max_new_tokens=128)


async def generate(inquiry: Inquiry) -> ASGIApp:
    """POST or PUT /generate."""
    body = parse_object(inquiry.body)
    params = read_params(body, GENERATE_FIELDS, defaults=_DEFAULTS)
    name = "text" if body.get("text") is not None else "input_ids"
    if not params.prompts:
        raise BadRequest("text: missing, and so is input_ids; one is needed", field="text")
    params = msgspec.structs.replace(params, prompt_field=name)
    (generation,) = await inquiry.start(params)
    answer = NativeAnswer(inquiry, params, generation)
    if params.stream:
        return EventStream(_events(answer, await generation.piece()))
    try:
        while generation.finish is None:
            answer.take(await generation.piece())
    except Aborted as error:  # asked for by somebody: an answer, not a failure
        result = answer.body({"type": "abort", "message": str(error), "status_code": None})
    else:
        result = answer.body(answer.finish_reason())
    given = body[name]
    listed = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
    return json_response([result] if listed else result)


async def _events(answer: "NativeAnswer", piece: Piece) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            answer.take(piece)
            yield event(answer.body(answer.finish_reason()))
            if piece.finish is not None:
                break
            piece = await answer.generation.piece()
    except WorkerError as error:
        body = error_body(error, Api.NATIVE)
        yield event(body | {"error": body})  # clients look for either
    yield DONE


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

    def finish_reason(self) -> dict[str, Any] | None:
        """None while the answer goes on."""
        finish = self.generation.finish
        if finish is None:
            return None
        if finish.reason == "length":
            # A prefill's one token is not the answer's length.
            length = 0 if self._is_prefill else self.generation.completion_tokens
            return {"type": "length", "length": length}
        return {"type": finish.reason, "matched": finish.matched}

    def body(self, finish_reason: dict[str, Any] | None) -> dict[str, Any]:
        """Everything so far."""
        generation = self.generation
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
            meta |= _logprobs(self._tokens, self._params, self._tokenizer)
        result: dict[str, Any] = {
            "text": "".join(self._text),
            "output_ids": [token.id for token in self._tokens],
            "meta_info": meta,
        }
        if self._params.return_handoff and finish_reason is not None:
            result["pdcluster"] = {"handoff": generation.handoff}
        return result


def _logprobs(tokens: list[TokenInfo], params: Params, tokenizer: Tokenizer) -> dict[str, Any]:
    def entry(token: int, logprob: float | None) -> tuple[float | None, int, str | None]:
        text = tokenizer.token_text(token) if params.text_in_logprobs else None
        return (logprob, token, text)

    result: dict[str, Any] = {
        "input_token_logprobs": [],
        "output_token_logprobs": [entry(token.id, token.logprob) for token in tokens],
    }
    if params.top_logprobs:
        result["input_top_logprobs"] = []
        result["output_top_logprobs"] = [
            [entry(other, logprob) for other, logprob in token.top] for token in tokens
        ]
    return result
