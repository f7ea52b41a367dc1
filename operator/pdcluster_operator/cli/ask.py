"""Ask a model through the router, print the answer as it comes, and say what it cost.

The request carries `return_handoff: true`. The stock router passes fields it does not know in both
directions (measured with smg 1.13, streaming and not), so the decode worker's last chunk arrives
with `"pdcluster": {"handoff": {...}}`: what moving this very request's KV cost. No need to
compare counters before and after, which other requests would disturb.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import httpx
from rich.table import Table

from pdcluster_operator.clock import Clock
from pdcluster_operator.errors import AnswerError

_CONNECT_TIMEOUT_S: Final = 5.0
_SILENCE_TIMEOUT_S: Final = 300.0  # a long prompt on a slow CPU
_TEXT_CHARS_MAX: Final = 500  # of an answer that is no error document
_WRAPPED: Final = re.compile(r"[^{]{1,200}: (\{.*\})", re.DOTALL)
_UNKNOWN: Final = "?"  # a very short answer can overtake the account of its hand-off


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask and how to answer."""

    text: str
    model: str
    max_tokens: int = 128
    temperature: float = 0.0

    def body(self) -> dict[str, Any]:
        """Return the request for /v1/chat/completions."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": self.text}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_handoff": True,
        }


@dataclass(slots=True)
class Answer:
    """The answer and its measurements, as this client saw them."""

    text: str = ""
    finish_reason: str | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    chunks: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    handoff: dict[str, Any] = field(default_factory=dict)

    @property
    def inter_token_s(self) -> float | None:
        """Mean time between tokens after the first."""
        tokens = int(self.usage.get("completion_tokens") or self.chunks)
        if self.first_token_s is None or tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (tokens - 1)

    def facts(self) -> dict[str, Any]:
        """Return everything, for `-o json`."""
        return asdict(self) | {"inter_token_s": self.inter_token_s}


async def ask(
    endpoint: str, question: Question, *, clock: Clock, on_text: Callable[[str], None]
) -> Answer:
    """Ask, and hand over each piece of the answer as it arrives; raises `AnswerError`."""
    timeout = httpx.Timeout(_SILENCE_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    url, answer, begun = f"{endpoint}/v1/chat/completions", Answer(), clock.now()
    try:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=timeout) as client,
            client.stream("POST", url, json=question.body()) as response,
        ):
            if response.status_code != 200:
                await response.aread()
                raise refusal(response.text, status=response.status_code)
            async for line in response.aiter_lines():
                if line.startswith("data:") and (piece := line[5:].strip()) != "[DONE]":
                    _take(answer, json.loads(piece), clock.now() - begun, on_text)
    except httpx.HTTPError as error:
        raise AnswerError(f"{url}: {error or type(error).__name__}") from error
    except ValueError as error:
        raise AnswerError(f"{url}: not a stream of JSON: {error}") from error
    return answer


def refusal(text: str, *, status: int | None = None) -> AnswerError:
    """Return the error that a server's answer stands for.

    The router and the workers nest it below `error`; some of their layers send the fields bare, or
    plain text; and the router wraps a worker's document in a sentence of its own.
    """
    try:
        content = json.loads(text)
    except ValueError:
        content = {}
    error = content.get("error", content) if isinstance(content, dict) else content
    if not isinstance(error, dict):
        error = {"message": str(error)}
    if wrapped := _WRAPPED.fullmatch(str(error.get("message", ""))):
        inner = refusal(wrapped[1], status=status)
        if inner.facts["message"] != wrapped[1]:
            return inner
    message = str(error.get("message") or " ".join(text.split())[:_TEXT_CHARS_MAX] or "no reason")
    labels = {"status": status, "type": error.get("type"), "code": error.get("code")}
    known = {key: value for key, value in labels.items() if value not in (None, "")}
    if known.get("code") == status:
        known.pop("code", None)  # it says the same once more
    detail = ", ".join(f"{key} {value}" for key, value in known.items())
    shown = f"{message} ({detail})" if detail else message
    return AnswerError(shown, facts={"message": message, **known})


def _take(
    answer: Answer, chunk: dict[str, Any], at_s: float, on_text: Callable[[str], None]
) -> None:
    if "error" in chunk:
        raise refusal(json.dumps(chunk))
    for choice in chunk.get("choices") or ():
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        text = (choice.get("delta") or {}).get("content")
        if text:
            if answer.first_token_s is None:
                answer.first_token_s = at_s
            answer.last_token_s = at_s
            answer.chunks += 1
            answer.text += text
            on_text(text)
    answer.usage = chunk.get("usage") or answer.usage
    answer.handoff = (chunk.get("pdcluster") or {}).get("handoff") or answer.handoff


def answer_table(answer: Answer) -> Table:
    """Return the small table below an answer."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in _rows(answer):
        table.add_row(name, value)
    return table


def _rows(answer: Answer) -> list[tuple[str, str]]:
    usage, moved = answer.usage, answer.handoff
    rows = [
        ("time to first token", _ms(answer.first_token_s)),
        ("inter-token latency", _ms(answer.inter_token_s)),
        ("prompt tokens", str(usage.get("prompt_tokens", "?"))),
        ("answer tokens", str(usage.get("completion_tokens", "?"))),
    ]
    if not moved:
        return [*rows, ("hand-off", "not reported by the worker")]
    seconds, descriptors = moved["seconds"], moved["descriptors"]
    rate = f"{moved['bytes'] / seconds / 1e9:.2f} GB/s" if seconds else _UNKNOWN
    posted = _UNKNOWN if descriptors is None else str(descriptors)
    return [
        *rows,
        ("pages handed over", str(moved["pages"])),
        ("bytes handed over", f"{moved['bytes']:,}"),
        ("hand-off time", _ms(seconds)),
        ("hand-off rate", rate),
        ("published to committed", _ms(moved["total_seconds"])),
        ("descriptors posted", f"{posted} in {moved['chunks']} chunk(s)"),
    ]


def _ms(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{seconds * 1e3:.2f} ms"
