"""One request on its way through the frontend.

Submit to the scheduler -> Tokens ... -> pieces of text -> finish
  ends by  the scheduler's finish ("stop" on a token, "length")
           a stop string that the frontend sees: the scheduler gets Abort(finished=True)
           an abort that somebody asked for: the answer so far, with "abort" as its end
           Failed from the scheduler: raised as its WorkerError
           `close` before any of these (the client left): the scheduler gets Abort
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import Aborted, BadRequest, ClientGone, WorkerError, rebuild
from pdcluster_worker.frontend.link import SchedulerLink
from pdcluster_worker.frontend.metrics import FrontendMetrics
from pdcluster_worker.frontend.stops import StopMatcher
from pdcluster_worker.frontend.text import Tokenizer
from pdcluster_worker.wire.local import Failed, Handoff, Submit, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """One generated token; ``logprob`` is None unless asked for."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Why the answer ended."""

    reason: str  # "stop" | "length" | "abort"
    matched: int | str | None = None  # the stop token or string
    message: str = ""  # why it was aborted


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What became known at once. The last piece of an answer has ``finish``."""

    text: str
    tokens: tuple[TokenInfo, ...]
    finish: Finish | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A request as the scheduler gets it, and what stays with the frontend."""

    submit: Submit
    prompt_tokens: int
    call_rid: str = ""  # the client's name for it, which its other samples share
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    skip_special: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every generation uses."""

    link: SchedulerLink
    tokenizer: Tokenizer
    metrics: FrontendMetrics
    clock: Clock


class Generation:
    """Turns the scheduler's messages into pieces. `close` it, whatever happens."""

    def __init__(self, request: GenerationRequest, around: Surroundings) -> None:
        """Submit. Raises what `SchedulerLink.open` raises."""
        self.request = request
        self._around = around
        self._inbox = around.link.open(request.submit)
        self._matcher = StopMatcher(request.stop, keep=request.keep_stop)
        self._detokenizer = around.tokenizer.detokenizer(skip_special=request.skip_special)
        self._last_at: float | None = None
        self._closed = False
        self.finish: Finish | None = None
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.handoff: Handoff | None = None
        self.prompt: tuple[TokenInfo, ...] | None = None  # its tokens with logprobs, when asked for
        around.metrics.started()

    @property
    def rid(self) -> str:
        return self.request.submit.rid

    @property
    def prompt_tokens(self) -> int:
        return self.request.prompt_tokens

    def elapsed_s(self) -> float:
        """Since the HTTP request came."""
        return self._around.clock.now() - self.request.submit.received_s

    async def piece(self) -> Piece:
        """Wait for the next piece. Not to be called after the one with ``finish``."""
        message = await self._inbox.get()
        if isinstance(message, Failed):
            return self._failed(message)
        self._time()
        return self._take(message)

    def named(self, rid: str, *, prefix: bool = False) -> bool:
        """True when ``rid`` means this one: its own name, its call's, or how they begin."""
        names = (self.rid, self.request.call_rid)
        return any(name and (name.startswith(rid) if prefix else name == rid) for name in names)

    def close(self) -> None:
        """Tell the scheduler if the answer is not complete. Idempotent."""
        if not self._closed:
            self._around.link.abort(self.rid, ClientGone("the client left"))
            self._end("aborted")

    def cut(self, error: WorkerError) -> None:
        """End it from outside, with an error that the client gets to see."""
        if not self._closed:
            self._around.link.abort(self.rid, error)
            self._inbox.put(Failed(rid=self.rid, kind=error.kind, message=str(error)))

    def _failed(self, message: Failed) -> Piece:
        error = rebuild(message.kind, message.message)
        if isinstance(error, BadRequest):
            error.field = message.field
        if not self._closed:
            self._end(_outcome(error))
        if not isinstance(error, Aborted):
            raise error
        self.finish = Finish(reason="abort", message=message.message)
        text = self._matcher.push(self._detokenizer.finish()) + self._matcher.finish()
        return Piece(text=text, tokens=(), finish=self.finish)

    def _end(self, outcome: str) -> None:
        self._closed = True
        self._around.metrics.ended(outcome, self.elapsed_s())

    def _time(self) -> None:
        now = self._around.clock.now()
        if self._last_at is None:
            self._around.metrics.first_token(now - self.request.submit.received_s)
        else:
            self._around.metrics.later_token(now - self._last_at)
        self._last_at = now

    def _take(self, message: Tokens) -> Piece:
        text: list[str] = []
        tokens: list[TokenInfo] = []
        self.cached_tokens = message.cached_tokens or self.cached_tokens
        self.handoff = message.handoff or self.handoff
        if self.prompt is None and self.request.submit.sampling.input_logprobs_from is not None:
            self.prompt = tuple(_scored(self.request.submit, message))
        for index, token in enumerate(message.ids):
            tokens.append(_info(message, index))
            self.completion_tokens += 1
            if not self._is_trimmed(message, index):
                text.append(self._matched(self._detokenizer.push(token)))
            if self._matcher.matched is not None:
                break
        if message.finish is not None and self._matcher.matched is None:
            text.append(self._matcher.push(self._detokenizer.finish()))
        self._conclude(message)
        if self.finish is not None:
            text.append(self._matcher.finish())
        return Piece(text="".join(text), tokens=tuple(tokens), finish=self.finish)

    def _matched(self, text: str) -> str:
        """What may be shown of it; stop strings count once the shortest answer is complete."""
        if self.completion_tokens < self.request.submit.sampling.min_new_tokens:
            return text
        return self._matcher.push(text)

    def _is_trimmed(self, message: Tokens, index: int) -> bool:
        """A matched stop token is no text, unless the client wants it."""
        last = index == len(message.ids) - 1
        stopped = last and message.matched_token == message.ids[index]
        return stopped and not self.request.keep_stop

    def _conclude(self, message: Tokens) -> None:
        if (matched := self._matcher.matched) is not None:
            self.finish = Finish(reason="stop", matched=matched)
            if message.finish is None:
                self._around.link.abort(self.rid, Aborted("stop string"), finished=True)
        elif message.finish is not None:
            self.finish = Finish(reason=message.finish, matched=message.matched_token)
        if self.finish is not None:
            self._end("finished")


def _info(message: Tokens, index: int) -> TokenInfo:
    return TokenInfo(
        id=message.ids[index],
        logprob=message.logprobs[index] if index < len(message.logprobs) else None,
        top=tuple((top.token, top.logprob) for top in message.top[index])
        if index < len(message.top)
        else (),
    )


def _scored(submit: Submit, message: Tokens) -> Iterator[TokenInfo]:
    """The prompt's tokens from where it is scored on; nothing comes before the first of them."""
    first, *others = np.frombuffer(submit.input_ids, "<i4")[submit.sampling.input_logprobs_from :]
    yield TokenInfo(id=int(first))
    for index, token in enumerate(others):
        top = message.input_top[index] if index < len(message.input_top) else ()
        yield TokenInfo(
            id=int(token),
            logprob=message.input_logprobs[index],
            top=tuple((best.token, best.logprob) for best in top),
        )


def _outcome(error: WorkerError) -> str:
    """One of `pdcluster_api.metrics.OUTCOMES`."""
    if error.code == 499:
        return "aborted"
    if 400 <= error.code < 500:
        return "refused"
    return "unavailable" if error.retryable else "failed"
