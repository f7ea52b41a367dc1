"""OpenAI's shapes: chat completions and legacy completions, streamed and not.

Both are one flow with two `Shape`s: what an object is called and how a choice holds text, logprobs
and the finish reason.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.types import ASGIApp

from pdcluster_worker.core.errors import BadRequest, WorkerError
from pdcluster_worker.frontend.errors import Api, error_body, json_response
from pdcluster_worker.frontend.events import DONE, EventStream, event
from pdcluster_worker.frontend.fields import CHAT_FIELDS, COMPLETION_FIELDS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.generation import Generation, Piece, TokenInfo
from pdcluster_worker.frontend.openai_logprobs import ChatLogprobs, CompletionLogprobs
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import parse_object, read_params

_CHAT_DEFAULTS = Params(prompt_field="messages")
# What OpenAI gives a completion without max_tokens.
_COMPLETION_DEFAULTS = Params(max_new_tokens=16)


class LogprobShape(Protocol):
    """Collects logprobs of one answer; the legacy shape counts characters."""

    def take(self, tokens: tuple[TokenInfo, ...]) -> dict[str, Any]:
        """The object for these tokens."""
        ...


class Shape(Protocol):
    """How one of the two APIs writes its answer."""

    id_prefix: str
    object_name: str
    chunk_name: str

    def whole(self, text: str, *, logprobs: Any, finish: str) -> dict[str, Any]:
        """The choice of an unstreamed answer."""
        ...

    def first(self) -> dict[str, Any] | None:
        """A choice sent before any text."""
        ...

    def part(self, text: str, *, logprobs: Any, finish: str | None) -> dict[str, Any]:
        """The choice of one event."""
        ...


class ChatShape:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def whole(self, text: str, *, logprobs: Any, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def first(self) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, text: str, *, logprobs: Any, finish: str | None) -> dict[str, Any]:
        delta = {"content": text} if text or finish is None else {}
        return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class CompletionShape:
    """/v1/completions."""

    id_prefix = "cmpl-"
    object_name = "text_completion"
    chunk_name = "text_completion"

    def whole(self, text: str, *, logprobs: Any, finish: str) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def first(self) -> dict[str, Any] | None:
        return None

    def part(self, text: str, *, logprobs: Any, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}


async def chat(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/chat/completions."""
    params = read_params(parse_object(inquiry.body), CHAT_FIELDS, defaults=_CHAT_DEFAULTS)
    if not params.messages:
        raise BadRequest("messages: must be a list of at least one message", field="messages")
    if params.top_logprobs and not params.logprobs:
        raise BadRequest("top_logprobs: needs logprobs to be true", field="top_logprobs")
    (generation,) = await inquiry.start(params)
    shape = ChatLogprobs(inquiry.frontend.tokenizer) if params.logprobs else None
    return await _answer(_Answer(inquiry, params, ChatShape(), shape), generation)


async def completions(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/completions."""
    body = parse_object(inquiry.body)
    params = read_params(body, COMPLETION_FIELDS, defaults=_COMPLETION_DEFAULTS)
    if not params.prompts:
        raise BadRequest("prompt: missing", field="prompt")
    params = msgspec.structs.replace(params, logprobs=params.top_logprobs is not None)
    (generation,) = await inquiry.start(params)
    shape = CompletionLogprobs(inquiry.frontend.tokenizer) if params.logprobs else None
    return await _answer(_Answer(inquiry, params, CompletionShape(), shape), generation)


@dataclass(frozen=True, slots=True)
class _Answer:
    """How one call is answered."""

    inquiry: Inquiry
    params: Params
    shape: Shape
    logprobs: LogprobShape | None

    def envelope(self, generation: Generation, *, name: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"{self.shape.id_prefix}{generation.rid}",
            "object": name,
            "created": self.inquiry.created,
            "model": self.inquiry.frontend.settings.served_name,
            "choices": choices,
        }

    def logprobs_of(self, tokens: tuple[TokenInfo, ...]) -> dict[str, Any] | None:
        return self.logprobs.take(tokens) if self.logprobs is not None and tokens else None


async def _answer(answer: _Answer, generation: Generation) -> ASGIApp:
    if answer.params.stream:
        # The status is sent with the first token: until then a refusal can still be an HTTP error.
        return EventStream(_events(answer, generation, await generation.piece()))
    text: list[str] = []
    tokens: list[TokenInfo] = []
    while generation.finish is None:
        piece = await generation.piece()
        text.append(piece.text)
        tokens += piece.tokens
    assert generation.finish is not None
    choice = answer.shape.whole(
        "".join(text),
        logprobs=answer.logprobs_of(tuple(tokens)),
        finish=generation.finish.reason,
    )
    body = answer.envelope(generation, name=answer.shape.object_name, choices=[choice])
    body["usage"] = _usage(generation)
    return json_response(body | _handoff(answer, generation))


async def _events(
    answer: _Answer, generation: Generation, piece: Piece
) -> AsyncGenerator[bytes, None]:
    """All events of an answer that begins with ``piece``."""
    first = answer.shape.first()
    if first is not None:
        yield _chunk(answer, generation, [first])
    try:
        while piece.finish is None:
            if piece.text or (piece.tokens and answer.logprobs is not None):
                logprobs = answer.logprobs_of(piece.tokens)
                part = answer.shape.part(piece.text, logprobs=logprobs, finish=None)
                yield _chunk(answer, generation, [part])
            piece = await generation.piece()
    except WorkerError as error:
        yield event(error_body(error, Api.OPENAI))
        yield DONE
        return
    logprobs = answer.logprobs_of(piece.tokens)
    choice = answer.shape.part(piece.text, logprobs=logprobs, finish=piece.finish.reason)
    last = not answer.params.include_usage
    yield _chunk(answer, generation, [choice], **(_handoff(answer, generation) if last else {}))
    if answer.params.include_usage:
        extra = {"usage": _usage(generation), **_handoff(answer, generation)}
        yield _chunk(answer, generation, [], **extra)
    yield DONE


def _chunk(answer: _Answer, generation: Generation, choices: list[Any], **extra: Any) -> bytes:
    body = answer.envelope(generation, name=answer.shape.chunk_name, choices=choices)
    if answer.params.include_usage:
        body["usage"] = None
    return event(body | extra)


def _usage(generation: Generation) -> dict[str, Any]:
    return {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "total_tokens": generation.prompt_tokens + generation.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": generation.cached_tokens},
    }


def _handoff(answer: _Answer, generation: Generation) -> dict[str, Any]:
    if not answer.params.return_handoff:
        return {}
    return {"pdcluster": {"handoff": generation.handoff}}
