"""Text to tokens and back, for clients that count or prepare prompts."""

from starlette.types import ASGIApp

from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.frontend.calls import chat_ids, text_ids
from pdcluster_worker.frontend.errors import json_response
from pdcluster_worker.frontend.fields import DETOKENIZE_FIELDS, TOKENIZE_FIELDS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.parse import read_params


async def tokenize(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/tokenize: a list of tokens, or a list of lists for a list of texts."""
    frontend = inquiry.frontend
    body = inquiry.object()
    params = read_params(body, TOKENIZE_FIELDS)
    if not params.prompts and not params.messages:
        raise BadRequest("prompt: missing, and so are messages; one is needed", field="prompt")
    found = [
        list(await text_ids(params, frontend.tokenizer, text=text))
        for text in params.prompts
        if isinstance(text, str)
    ]
    listed = isinstance(body.get("prompt"), list)
    if not params.prompts:
        found = [list(await chat_ids(params, frontend.tokenizer))]
    ready = frontend.link.ready
    counts = [len(ids) for ids in found]
    return json_response(
        {
            "tokens": found if listed else found[0],
            "count": counts if listed else counts[0],
            "max_model_len": None if ready is None else ready.capacity_tokens,
        }
    )


async def detokenize(inquiry: Inquiry) -> ASGIApp:
    """POST /v1/detokenize: a text, or a list of them for a list of lists."""
    body = inquiry.object()
    params = read_params(body, DETOKENIZE_FIELDS)
    given = body.get("tokens")
    if given is None:
        raise BadRequest("tokens: missing", field="tokens")
    texts = [
        inquiry.frontend.tokenizer.decode(ids, skip_special=params.skip_special)
        for ids in params.prompts
        if not isinstance(ids, str)
    ]
    listed = isinstance(given, list) and bool(given) and isinstance(given[0], list)
    return json_response({"text": texts if listed else texts[0]})
