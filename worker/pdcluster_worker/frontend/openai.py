"""OpenAI's APIs: chat completions and legacy completions, streamed and not.

Both are one flow with two `Shape`s. A call of P prompts with n samples each has P*n choices, prompt
by prompt.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from starlette.types import ASGIApp

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest, WorkerError
from pdcluster_worker.frontend.errors import Api, error_body, json_response
from pdcluster_worker.frontend.events import DONE, EventStream, event
from pdcluster_worker.frontend.fields import CHAT_FIELDS, COMPLETION_FIELDS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.generation import Generation, Piece, TokenInfo
from pdcluster_worker.frontend.merge import Happening, first_of, merged
from pdcluster_worker.frontend.openai_logprobs import ChatLogprobs, CompletionLogprobs
from pdcluster_worker.frontend.openai_shapes import ChatShape, CompletionShape, Shape
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import read_params
from pdcluster_worker.frontend.text import Tokenizer

CHAT_DEFAULTS = Params()
# What OpenAI gives a completion without max_tokens.
COMPLETION_DEFAULTS = Params(max_new_tokens=16)


class LogprobShape(Protocol):
    """Collects logprobs of one answer; the legacy shape counts characters."""

    def take(self, tokens: tuple[TokenInfo, ...]) -> dict[str, Any]:
        """The object for these tokens."""
        ...


async def chat(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/chat/completions."""
    params = read_params(inquiry.object(), CHAT_FIELDS, defaults=CHAT_DEFAULTS)
    if not params.messages:
        raise BadRequest("messages: must be a list of at least one message", field="messages")
    if params.top_logprobs and not params.logprobs:
        raise BadRequest("top_logprobs: needs logprobs to be true", field="top_logprobs")
    return await _answer(inquiry, [params], shape=ChatShape(), logprobs=ChatLogprobs)


async def completions(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/completions."""
    params = read_params(inquiry.object(), COMPLETION_FIELDS, defaults=COMPLETION_DEFAULTS)
    if not params.prompts:
        raise BadRequest("prompt: missing", field="prompt")
    params = msgspec.structs.replace(params, logprobs=params.top_logprobs is not None)
    if params.echo and params.logprobs:
        _check_echo(inquiry)
        params = msgspec.structs.replace(
            params, logprob_start=0, names=params.names | {"logprob_start": "echo"}
        )
    items = [msgspec.structs.replace(params, prompts=(prompt,)) for prompt in params.prompts]
    return await _answer(inquiry, items, shape=CompletionShape(), logprobs=CompletionLogprobs)


def _check_echo(inquiry: Inquiry) -> None:
    """No router puts prefill's part of this answer before decode's."""
    if inquiry.frontend.settings.launch.role is not Role.AGGREGATED:
        message = "echo: together with logprobs only where prefill and decode are one worker"
        raise BadRequest(message, field="echo")


@dataclass(slots=True, kw_only=True)
class _Choice:
    """One answer as it grows."""

    index: int
    generation: Generation
    logprobs: LogprobShape | None
    echo: str  # the prompt, when it is to be repeated
    begun: bool = False
    text: list[str] = field(default_factory=list)
    tokens: list[TokenInfo] = field(default_factory=list)

    def take(self, piece: Piece) -> None:
        self.text.append(piece.text)
        self.tokens += piece.tokens

    def logprobs_of(self, tokens: Sequence[TokenInfo]) -> dict[str, Any] | None:
        wanted = self.logprobs is not None and tokens
        return self.logprobs.take(tuple(tokens)) if wanted and self.logprobs is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """How one call is answered."""

    inquiry: Inquiry
    params: Params
    shape: Shape
    choices: list[_Choice]

    def envelope(self, name: str, *, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"{self.shape.id_prefix}{self.choices[0].generation.rid}",
            "object": name,
            "created": self.inquiry.created,
            "model": self.inquiry.frontend.settings.served_name,
            "choices": choices,
        }

    def usage(self) -> dict[str, Any]:
        """Of all choices; a prompt counts once, however many samples it has."""
        generations = [choice.generation for choice in self.choices]
        firsts = generations[:: self.params.n]
        prompt = sum(generation.prompt_tokens for generation in firsts)
        completion = sum(generation.completion_tokens for generation in generations)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(g.cached_tokens for g in firsts)},
        }

    def handoff(self) -> dict[str, Any]:
        """What moving the KV cost: the first request's, and everybody's when there are more."""
        if not self.params.return_handoff:
            return {}
        all_of_them = [choice.generation.handoff for choice in self.choices]
        more = {"handoffs": all_of_them} if len(all_of_them) > 1 else {}
        return {"pdcluster": {"handoff": all_of_them[0], **more}}


async def _answer(
    inquiry: Inquiry,
    items: list[Params],
    *,
    shape: Shape,
    logprobs: Callable[[Tokenizer], LogprobShape],
) -> ASGIApp:
    params, tokenizer = items[0], inquiry.frontend.tokenizer
    generations = await inquiry.start(items)
    choices = [
        _Choice(
            index=index,
            generation=generation,
            logprobs=logprobs(tokenizer) if params.logprobs else None,
            echo=_echo(items[index // params.n], tokenizer),
        )
        for index, generation in enumerate(generations)
    ]
    answer = _Answer(inquiry=inquiry, params=params, shape=shape, choices=choices)
    happenings = merged(generations)
    if params.stream:
        # The status is sent with the first token: until then a refusal can still be an HTTP error.
        return EventStream(_events(answer, happenings, await first_of(happenings)))
    async with contextlib.aclosing(happenings):
        async for happening in happenings:
            if isinstance(happening.outcome, WorkerError):
                raise happening.outcome
            choices[happening.index].take(happening.outcome)
    body = answer.envelope(shape.object_name, choices=[_whole(answer, c) for c in choices])
    return json_response(body | {"usage": answer.usage()} | answer.handoff())


def _echo(params: Params, tokenizer: Tokenizer) -> str:
    if not params.echo:
        return ""
    (prompt,) = params.prompts
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)


def _whole(answer: _Answer, choice: _Choice) -> dict[str, Any]:
    finish = choice.generation.finish
    assert finish is not None
    return answer.shape.whole(
        choice.echo + "".join(choice.text),
        index=choice.index,
        logprobs=choice.logprobs_of([*(choice.generation.prompt or ()), *choice.tokens]),
        finish=finish.reason,
    )


async def _events(
    answer: _Answer, happenings: AsyncGenerator[Happening, None], first: Happening
) -> AsyncGenerator[bytes, None]:
    """All events of a call that begins with ``first``. A failure of one choice ends the call."""
    running = len(answer.choices)
    async with contextlib.aclosing(happenings):
        happening: Happening | None = first
        while happening is not None:
            if isinstance(happening.outcome, WorkerError):
                yield event(error_body(happening.outcome, Api.OPENAI))
                yield DONE
                return
            running -= happening.last
            choice = answer.choices[happening.index]
            for part in _parts(answer, choice, happening.outcome):
                ended = happening.last and not running and not answer.params.include_usage
                extra = answer.handoff() if ended and part["finish_reason"] else {}
                yield _chunk(answer, [part], **extra)
            happening = await anext(happenings, None)
    if answer.params.include_usage:
        yield _chunk(answer, [], usage=answer.usage(), **answer.handoff())
    yield DONE


def _parts(answer: _Answer, choice: _Choice, piece: Piece) -> list[dict[str, Any]]:
    """The choices that tell of one piece; none while a character is incomplete."""
    parts: list[dict[str, Any]] = []
    if not choice.begun:
        choice.begun = True
        prompt = choice.logprobs_of(choice.generation.prompt or ())
        opening = answer.shape.first(choice.echo, index=choice.index, logprobs=prompt)
        parts += [opening] if opening is not None else []
    finish = None if piece.finish is None else piece.finish.reason
    if piece.text or finish is not None or (piece.tokens and choice.logprobs is not None):
        logprobs = choice.logprobs_of(piece.tokens)
        parts.append(
            answer.shape.part(piece.text, index=choice.index, logprobs=logprobs, finish=finish)
        )
    return parts


def _chunk(answer: _Answer, choices: list[Any], **extra: Any) -> bytes:
    body = answer.envelope(answer.shape.chunk_name, choices=choices)
    if answer.params.include_usage:
        body["usage"] = None
    return event(body | extra)
