"""Writes ``docs/http-api.md`` from the tables the frontend works by; ``--check`` only compares."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pdcluster_worker.core.errors import by_kind
from pdcluster_worker.frontend.fields import (
    IGNORED,
    LEG_FIELDS,
    OVERRIDES,
    SAMPLING_FIELDS,
    Field,
)
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.routes import ENDPOINTS, Endpoint

PATH: Final = Path("docs/http-api.md")

_INTRO: Final = """\
# HTTP API

Generated from the route and field tables in `worker/pdcluster_worker/frontend`; `make generate`
rewrites it.

Clients talk to the router, which sends the same body to one prefill and one decode worker and adds
the `bootstrap_*` fields. The answer is decode's. An `aggregated` worker takes the same requests
without a router.

A field that is null is as good as absent, and fields in no table are ignored. A wrong value is a
400 that names the field and says what is allowed. A body is one JSON object.
"""

_BATCHES: Final = """\
## Several prompts, several samples

P prompts with `n` samples each are P*n requests, prompt by prompt, and as many choices or items.
Each has a room of its own, which both legs derive equally from the body:

| `bootstrap_room` | room of sample s of prompt p |
|---|---|
| one room r, alone or in a list | r + p*n + s |
| a list of P rooms | rooms[p] + s |
| a list of P*n rooms | rooms[p*n + s] |

Sums go round within 1 .. 2^63-1, and 0 stands for 2^63-1. Two requests of one call that would share
a room are a 400. Sample s of a prompt with a `seed` is drawn with seed + s. In `usage` a prompt
counts once, however many samples it has. The first request that fails is the answer of a call that
is not streamed, and ends the others. In a stream of /generate only its own `index` ends; a stream
of the OpenAI endpoints ends as a whole, as their clients raise.

/generate takes lists, with one value for each prompt, of: `rid`, `sampling_params`,
`return_logprob`, `top_logprobs_num`, `return_text_in_logprobs`, `priority`.
"""

_ANSWERS: Final = """\
## What differs from OpenAI and SGLang

- A prefill worker's own answer is one token with `{"type": "length", "length": 0}`, as SGLang's.
- `/abort_request` ends exactly the named request, or all requests of a call when its `rid` is
  given. SGLang ends everything whose name begins so: here `prefix` has to ask for it. The clients
  get a 200 with what there was, and `abort` as its finish reason.
- `/health_generate` uses no room, no place in a queue and, while its own pass runs, one page. A
  request to the bootstrap host `2.2.2.2` is answered in the same way, with one token that means
  nothing.
- `/flush_cache` has nothing to flush, since no KV outlives its request: it waits until the worker
  is idle.
- Logprobs are of the model's own distribution, before temperature, filters, penalties and biases.
- `response_format` other than text, `regex`, `ebnf`, `json_schema`, `tools`, `best_of`, `suffix`
  and images are refused, not ignored.
- Logprobs of the prompt are prefill's part: decode leaves `input_token_logprobs` and
  `input_top_logprobs` empty. The first entry has no logprob, as nothing comes before it. `echo`
  with `logprobs` needs an aggregated worker, since no router merges the OpenAI shape.
- A 503 says `Retry-After`; routers try another pair. When one leg refuses, it tells the other one
  itself, so that nobody waits for a time limit.
- A client that leaves ends its request on both legs.
"""

_ROUTERS: Final = """\
## What the routers do to it

Measured with smg 1.13.0 and sglang-router 0.3.2:

- Both read `sampling_params` into a form of their own, in which `seed` and `logit_bias` are lost:
  say `sampling_seed`, and use an OpenAI endpoint for a bias.
- A /generate body must have scalars: lists of `text`, `rid`, `return_logprob` and the like are
  refused by the router. A list of `input_ids` lists passes, with a list of rooms, one a prompt.
- A list of `prompt` for /v1/completions has one room a prompt, a chat with `n` one a sample; `n` of
  /generate and of /v1/completions adds no rooms. All forms are read as the table above says.
- Of the logprobs of the prompt only `input_token_logprobs` of one unstreamed /generate prompt are
  put before decode's. `input_top_logprobs`, lists of prompts and streams are not merged.
- sglang-router drops fields that it does not know from /generate and chats (`return_handoff`; of
  chats also `rid`). smg passes them on. Neither passes `x-override-*` headers on.
- A model name that no worker serves is a 503 of smg's own, and our 413 becomes its 500.
- The first 503 of a draining or full worker leads to another pair and new rooms.
"""

_ERRORS: Final = """\
OpenAI endpoints answer `{error: {message, type, param, code}}`, the others
`{object: error, message, type, param, code}`; `param` is the field. After the first event of a
stream the same body comes as an event.
"""


def document() -> str:
    """The whole page."""
    parts = [_INTRO, "## Endpoints\n", _table(("path", "methods", "what it does"), _routes())]
    for title, endpoint in _with_bodies():
        parts += [f"## {title}\n", _fields(_own_fields(endpoint), endpoint.defaults)]
        if endpoint.generates:
            more = "`sampling_params` are" if title == "/generate" else "fields are"
            parts.append(f"Its further {more} listed under Sampling and The other leg.\n")
    parts += ["## Sampling\n", "In /generate these are fields of `sampling_params`.\n"]
    parts.append(_fields(SAMPLING_FIELDS, Params()))
    parts += ["## The other leg\n", "Routers fill these in.\n", _fields(LEG_FIELDS, Params())]
    parts.append("Headers replace fields of the body:\n")
    overrides = ((f"`{o.header}`", f"`{o.name}`") for o in OVERRIDES)
    parts.append(_table(("header", "field"), overrides))
    parts += [_BATCHES, _ANSWERS, _ROUTERS, "## Errors\n"]
    parts.append(_ERRORS)
    parts.append(_table(("kind", "status", "may be tried again", "meaning"), _errors()))
    return "\n".join(parts)


def _routes() -> Iterator[tuple[str, ...]]:
    for endpoint in ENDPOINTS:
        yield f"`{endpoint.path}`", ", ".join(endpoint.methods), endpoint.doc


def _with_bodies() -> Iterator[tuple[str, Endpoint]]:
    """Each body once, with all paths that take it."""
    seen: dict[int, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        if endpoint.fields:
            seen.setdefault(id(endpoint.fields), []).append(endpoint)
    for same in seen.values():
        yield ", ".join(endpoint.path for endpoint in same), same[0]


def _own_fields(endpoint: Endpoint) -> list[Field]:
    if not endpoint.generates:
        return list(endpoint.fields)
    shared = {field.name for field in (*LEG_FIELDS, *SAMPLING_FIELDS)}
    return [f for f in endpoint.fields if f.name.removeprefix("sampling_params.") not in shared]


def _fields(fields: Sequence[Field], defaults: Params) -> str:
    known: dict[str, Any] = msgspec.to_builtins(defaults)
    rows = (
        (f"`{field.name}`", field.read.shown, _default(field, known), field.doc) for field in fields
    )
    return _table(("field", "allowed", "default", "meaning"), rows)


def _default(field: Field, known: dict[str, Any]) -> str:
    value = None if field.to == IGNORED else known[field.to]
    return "" if value in (None, (), [], "") else f"`{msgspec.json.encode(value).decode()}`"


def _errors() -> Iterator[tuple[str, ...]]:
    for kind, cls in sorted(by_kind().items(), key=lambda item: (item[1].code, item[0])):
        meaning = (cls.__doc__ or "").partition("\n")[0]
        yield f"`{kind}`", str(cls.code), "yes" if cls.retryable else "no", meaning


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)
        + "\n"
    )


def main() -> None:
    """Rewrite the page, or say that it differs."""
    parser = argparse.ArgumentParser(description="Write the documentation of the HTTP API.")
    parser.add_argument("--check", action="store_true", help="write nothing, report a difference")
    if parser.parse_args().check:
        if PATH.read_text(encoding="utf-8") != document():
            sys.exit(f"{PATH} is not what the tables say")
    else:
        PATH.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
