"""From `Params` to what the scheduler gets: one internal list of requests per HTTP call."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.fields import REQUESTS_MAX, SCORES_MAX
from pdcluster_worker.frontend.generation import GenerationRequest
from pdcluster_worker.frontend.legs import Shape
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.text import Tokenizer
from pdcluster_worker.wire.local import Hop, Ready, Sampling, Submit

# Longer texts are tokenized in a thread, so that other requests' tokens are not held up.
INLINE_CHARS_MAX: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What turns parameters into requests."""

    settings: Settings
    tokenizer: Tokenizer
    ready: Ready
    received_s: float  # clock seconds


def shape_of(items: Sequence[Params]) -> Shape:
    """Prompts and samples of a call; the samples must be equally many for each prompt."""
    first = items[0]
    if other := next((item for item in items if item.n != first.n), None):
        name = (first if "n" in first.names else other).name_of("n")
        raise BadRequest(f"{name}: must be the same for all prompts of a call", field=name)
    shape = Shape(len(items), first.n)
    if shape.requests > REQUESTS_MAX:
        name = first.name_of("n" if first.n > 1 else "prompts")
        message = f"{name}: {shape.requests} requests in one call, at most {REQUESTS_MAX:,}"
        raise BadRequest(message, field=name)
    return shape


async def make_requests(
    items: Sequence[Params], context: CallContext, *, hops: Sequence[Hop | None]
) -> list[GenerationRequest]:
    """Tokenize and complete every request of a call; BadRequest names the field."""
    samples = items[0].n
    requests: list[GenerationRequest] = []
    call_rid = items[0].rid or secrets.token_hex(16)
    for number, item in enumerate(items):
        ids = await _tokenize(item, context.tokenizer)
        _check_tokens(item, ids, context.ready)
        item_rid = item.rid or call_rid
        numbered = item.rid is None or sum(other.rid == item.rid for other in items) > 1
        own = f"{item_rid}-{number}" if numbered and len(items) > 1 else item_rid
        for sample in range(samples):
            request = _request(
                item,
                context,
                ids=ids,
                hop=hops[len(requests)],
                rid=f"{own}-{sample}" if samples > 1 else own,
                sample=sample,
            )
            requests.append(request)
    return requests


def _request(
    params: Params,
    context: CallContext,
    *,
    ids: Sequence[int],
    hop: Hop | None,
    rid: str,
    sample: int,
) -> GenerationRequest:
    role = context.settings.launch.role
    # The first token is all that a prefill answers: nothing to match there.
    stop = () if role is Role.PREFILL else params.stop
    sampling = _sampling(params, context.ready, prompt_tokens=len(ids), sample=sample)
    if role is not Role.DECODE:  # which does not compute the prompt
        scored = _scored_from(params, prompt_tokens=len(ids))
        sampling = msgspec.structs.replace(sampling, input_logprobs_from=scored)
    submit = Submit(
        rid=rid,
        input_ids=np.asarray(ids, dtype="<i4").tobytes(),
        sampling=sampling,
        hop=hop,
        received_s=context.received_s,
    )
    return GenerationRequest(
        submit=submit,
        prompt_tokens=len(ids),
        call_rid=params.rid or "",
        stop=stop,
        keep_stop=params.keep_stop,
        skip_special=params.skip_special,
    )


def _scored_from(params: Params, *, prompt_tokens: int) -> int | None:
    start = params.logprob_start
    if start < 0 or not params.logprobs:
        return None
    name = params.name_of("logprob_start")
    if start >= prompt_tokens:
        message = f"{name}: {start} is beyond the prompt of {prompt_tokens} tokens"
        raise BadRequest(message, field=name)
    if (prompt_tokens - start) * (1 + (params.top_logprobs or 0)) > SCORES_MAX:
        name = params.name_of("top_logprobs")
        message = f"{name}: more than {SCORES_MAX:,} logprobs of one prompt"
        raise BadRequest(message, field=name)
    return start


def _check_tokens(params: Params, ids: Sequence[int], ready: Ready) -> None:
    name = params.name_of("messages" if params.messages else "prompts")
    if not ids:
        raise BadRequest(f"{name}: the prompt is empty", field=name)
    if (largest := max(ids)) >= ready.vocab:
        message = f"{name}: token {largest} is not in the vocabulary of {ready.vocab}"
        raise BadRequest(message, field=name)
    if (largest := max((t for t, _ in params.logit_bias), default=0)) >= ready.vocab:
        name = params.name_of("logit_bias")
        message = f"{name}: token {largest} is not in the vocabulary of {ready.vocab}"
        raise BadRequest(message, field=name)


def _sampling(params: Params, ready: Ready, *, prompt_tokens: int, sample: int) -> Sampling:
    # What does not fit is the scheduler's to refuse: it tells the other leg too.
    room_left = max(1, ready.capacity_tokens - prompt_tokens)
    longest = room_left if params.max_new_tokens is None else params.max_new_tokens
    if params.min_new_tokens > longest:
        name = params.name_of("min_new_tokens")
        message = f"{name}: {params.min_new_tokens} is above the longest answer {longest}"
        raise BadRequest(message, field=name)
    # Samples of one seed differ; both legs, and a repetition, draw the same ones.
    seed = secrets.randbits(63) if params.seed is None else (params.seed + sample) % 2**63
    return Sampling(
        max_new_tokens=longest,
        min_new_tokens=params.min_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k or -1,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=params.logit_bias,
        seed=seed,
        ignore_eos=params.ignore_eos,
        stop_token_ids=params.stop_token_ids,
        logprobs=(params.top_logprobs or 0) if params.logprobs else None,
    )


async def _tokenize(params: Params, tokenizer: Tokenizer) -> Sequence[int]:
    if params.messages:
        return await chat_ids(params, tokenizer)
    (prompt,) = params.prompts
    return prompt if not isinstance(prompt, str) else await text_ids(params, tokenizer, text=prompt)


async def text_ids(params: Params, tokenizer: Tokenizer, *, text: str) -> Sequence[int]:
    """Tokens of one text."""
    if len(text) <= INLINE_CHARS_MAX:
        return tokenizer.encode(text, add_special=params.add_special)
    return await asyncio.to_thread(tokenizer.encode, text, add_special=params.add_special)


async def chat_ids(params: Params, tokenizer: Tokenizer) -> Sequence[int]:
    """Tokens of a conversation; BadRequest with the template's own reason."""
    size = sum(len(message["content"]) for message in params.messages)
    try:
        if size <= INLINE_CHARS_MAX:
            return tokenizer.apply_chat_template(params.messages)
        return await asyncio.to_thread(tokenizer.apply_chat_template, params.messages)
    except ValueError as error:  # the template's own rules, e.g. that roles must alternate
        raise BadRequest(f"messages: {error}", field="messages") from error
