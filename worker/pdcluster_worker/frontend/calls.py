"""From `Params` to what the scheduler gets: one internal list of requests per HTTP call."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.fields import ROOM_MAX
from pdcluster_worker.frontend.generation import GenerationRequest
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.text import Tokenizer
from pdcluster_worker.wire.local import Hop, Ready, Sampling, Submit

T = TypeVar("T")

# Longer texts are tokenized in a thread, so that other requests' tokens are not held up.
INLINE_CHARS_MAX: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What turns parameters into requests."""

    settings: Settings
    tokenizer: Tokenizer
    ready: Ready
    received_s: float  # clock seconds


async def make_requests(params: Params, context: CallContext) -> tuple[GenerationRequest, ...]:
    """Tokenize and complete every request of a call; BadRequest names the field."""
    prompts = await _tokenize(params, context)
    hops = make_hops(params, context.settings, count=len(prompts))
    rid = params.rid or secrets.token_hex(16)
    return tuple(
        _request(
            params,
            context,
            ids=ids,
            hop=hop,
            rid=rid if len(prompts) == 1 else f"{rid}-{index}",
        )
        for index, (ids, hop) in enumerate(zip(prompts, hops, strict=True))
    )


def make_hops(params: Params, settings: Settings, *, count: int) -> tuple[Hop | None, ...]:
    """Where each request's other leg is. Both legs derive the same rooms from the same body."""
    role = settings.launch.role
    if role is Role.AGGREGATED:
        return (None,) * count
    return tuple(_hop(params, settings, index) for index in range(count))


def room_of(given: Sequence[int | None], index: int) -> int:
    """Room of the index-th request: the listed one, or a lone one plus the index.

    0 marks an unwritten metadata row, so it is mapped to the largest room (E72): equally on both
    legs, since both do it here.
    """
    room = given[index] if index < len(given) and len(given) > 1 else next(iter(given), None)
    if room is None:
        raise BadRequest(
            "bootstrap_room: missing; a prefill or decode worker needs the room that the router "
            "gives to both legs",
            field="bootstrap_room",
        )
    if len(given) == 1:
        room += index
    return room % (ROOM_MAX + 1) or ROOM_MAX


def _hop(params: Params, settings: Settings, index: int) -> Hop:
    launch = settings.launch
    room = room_of(params.bootstrap_room, index)
    if launch.role is Role.PREFILL:  # it is its own bootstrap address, whatever the client says
        return Hop(host=settings.pod_ip, port=launch.ports.bootstrap, room=room)
    host = _nth(params.bootstrap_host, index)
    if host is None:
        raise BadRequest(
            "bootstrap_host: missing; a decode worker needs the address of the prefill worker",
            field="bootstrap_host",
        )
    port = _nth(params.bootstrap_port, index)
    return Hop(host=host, port=launch.ports.bootstrap if port is None else port, room=room)


def _nth(values: Sequence[T | None], index: int) -> T | None:
    """The index-th value; a lone value stands for all."""
    if len(values) == 1:
        return values[0]
    return values[index] if index < len(values) else None


def _request(
    params: Params, context: CallContext, *, ids: Sequence[int], hop: Hop | None, rid: str
) -> GenerationRequest:
    if not ids:
        raise BadRequest(f"{params.prompt_field}: the prompt is empty", field=params.prompt_field)
    vocab = context.ready.vocab
    if (largest := max(ids)) >= vocab:
        message = f"{params.prompt_field}: token {largest} is not in the vocabulary of {vocab}"
        raise BadRequest(message, field=params.prompt_field)
    # The first token is all that a prefill answers: nothing to match there.
    stop = () if context.settings.launch.role is Role.PREFILL else params.stop
    submit = Submit(
        rid=rid,
        input_ids=np.asarray(ids, dtype="<i4").tobytes(),
        sampling=_sampling(params, context.ready, prompt_tokens=len(ids)),
        hop=hop,
        received_s=context.received_s,
    )
    return GenerationRequest(
        submit=submit,
        prompt_tokens=len(ids),
        stop=stop,
        keep_stop=params.keep_stop,
        skip_special=params.skip_special,
    )


def _sampling(params: Params, ready: Ready, *, prompt_tokens: int) -> Sampling:
    # What does not fit is the scheduler's to refuse: it tells the other leg too.
    room_left = max(1, ready.capacity_tokens - prompt_tokens)
    longest = room_left if params.max_new_tokens is None else params.max_new_tokens
    if params.min_new_tokens > longest:
        message = f"min_new_tokens {params.min_new_tokens} is above the longest answer {longest}"
        raise BadRequest(message, field="min_new_tokens")
    seed = secrets.randbits(63) if params.seed is None else params.seed % 2**63
    return Sampling(
        max_new_tokens=longest,
        min_new_tokens=params.min_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k or -1,
        min_p=params.min_p,
        seed=seed,
        ignore_eos=params.ignore_eos,
        stop_token_ids=params.stop_token_ids,
        logprobs=(params.top_logprobs or 0) if params.logprobs else None,
    )


async def _tokenize(params: Params, context: CallContext) -> list[Sequence[int]]:
    if params.messages:
        return [await _chat_ids(params, context.tokenizer)]
    found: list[Sequence[int]] = []
    for prompt in params.prompts:
        if not isinstance(prompt, str):
            found.append(prompt)
        elif len(prompt) <= INLINE_CHARS_MAX:
            found.append(context.tokenizer.encode(prompt))
        else:
            found.append(await asyncio.to_thread(context.tokenizer.encode, prompt))
    return found


async def _chat_ids(params: Params, tokenizer: Tokenizer) -> list[int]:
    size = sum(len(message["content"]) for message in params.messages)
    try:
        if size <= INLINE_CHARS_MAX:
            return tokenizer.apply_chat_template(params.messages)
        return await asyncio.to_thread(tokenizer.apply_chat_template, params.messages)
    except ValueError as error:  # the template's own rules, e.g. that roles must alternate
        raise BadRequest(f"messages: {error}", field="messages") from error
