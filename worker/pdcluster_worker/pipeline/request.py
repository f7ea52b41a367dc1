"""A live request, as the pipelines see it. One record, owned by one pipeline, keyed by ``key``."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pdcluster_api.states import Stage
from pdcluster_worker.core.ports import (
    PageIds,
    SampleParams,
    Score,
    Scoring,
    SequenceStep,
    StepResult,
)
from pdcluster_worker.kv.lease import Lease
from pdcluster_worker.wire.local import Handoff, Hop, Sampling, Submit, Tokens, TopLogprob

TokenIds = NDArray[np.int64]
DIGEST_BYTES: Final = 16


@dataclass(slots=True, kw_only=True)
class Request:
    """Intake -> queues -> finish. ``stage`` changes only through a life-cycle table."""

    key: int
    rid: str
    prompt: TokenIds
    sampling: Sampling
    hop: Hop | None
    digest: bytes  # of the prompt; legs of different prompts must never meet in one room
    max_new: int  # the client's limit, cut to the pool's capacity
    received_s: float
    stops: frozenset[int] = frozenset()  # tokens that end the answer
    stage: Stage | None = None
    since: float = 0.0  # when the stage was entered
    deadline: float = 0.0  # of the stage
    times: dict[Stage, float] = field(default_factory=dict)  # seconds spent, by stage left
    lease: Lease | None = None
    computed: int = 0  # positions whose KV is in our pool
    computing: bool = False  # part of the pass that runs now
    pass_tokens: int = 0  # its tokens in that pass
    first: StepResult | None = None  # prefill: the token to hand over
    scores: list[Score] = field(default_factory=list)  # of prompt tokens, until they are told
    output: list[int] = field(default_factory=list)
    peer: str = ""  # decode: instance of its prefill, once reached
    host_ticket: int | None = None  # of its KV's copy while retracted
    answered: bool = False  # the frontend has its last message
    outcome: str = ""  # of `pdcluster_api.metrics.OUTCOMES`, once answered
    failed_in: Stage | None = None  # the stage in which it failed
    error_kind: str = ""
    handoff: Handoff | None = None

    @property
    def room(self) -> int:
        """bootstrap_room; 0 without a hop."""
        return self.hop.room if self.hop else 0

    @property
    def length(self) -> int:
        """Prompt and output so far, in tokens."""
        return len(self.prompt) + len(self.output)

    def step(self, *, tokens: TokenIds, pages: PageIds, sample: bool) -> SequenceStep:
        """This request's share of a pass: ``tokens`` from position ``computed`` on."""
        return SequenceStep(
            key=self.key,
            tokens=tokens,
            start=self.computed,
            pages=pages,
            sample=self.sample_params() if sample else None,
            scoring=self._scoring(len(tokens)),
        )

    def _scoring(self, count: int) -> Scoring | None:
        """Of the prompt tokens that follow the next ``count`` rows, those that are asked for."""
        wanted_from = self.sampling.input_logprobs_from
        if wanted_from is None:
            return None
        begin = max(wanted_from, self.computed) + 1
        end = min(self.computed + count + 1, len(self.prompt))
        if begin >= end:
            return None
        return Scoring(
            row=begin - 1 - self.computed,
            targets=self.prompt[begin:end],
            top=self.sampling.logprobs or 0,
        )

    def sample_params(self) -> SampleParams:
        """How its next token is chosen."""
        s = self.sampling
        early = len(self.output) < s.min_new_tokens
        return SampleParams(
            temperature=s.temperature,
            top_p=s.top_p,
            top_k=s.top_k,
            min_p=s.min_p,
            seed=s.seed or 0,
            logprobs=s.logprobs,
            banned=tuple(self.stops) if early else (),
            logit_bias=s.logit_bias,
            presence_penalty=s.presence_penalty,
            frequency_penalty=s.frequency_penalty,
            repetition_penalty=s.repetition_penalty,
            prompt=self.prompt if s.penalised else None,
            output=tuple(self.output) if s.penalised else (),
        )

    def tokens_message(
        self, result: StepResult, *, finish: str | None = None, matched: int | None = None
    ) -> Tokens:
        """One new token for the frontend."""
        assert result.token is not None
        scores, self.scores = self.scores, []
        with_logprobs = self.sampling.logprobs is not None and result.logprob is not None
        return Tokens(
            rid=self.rid,
            ids=(result.token,),
            logprobs=(result.logprob,) if with_logprobs and result.logprob is not None else (),
            top=(tuple(TopLogprob(t, p) for t, p in result.top),) if with_logprobs else (),
            finish=finish,
            matched_token=matched,
            prompt_tokens=len(self.prompt),
            handoff=self.handoff if finish else None,
            input_logprobs=tuple(score.logprob for score in scores),
            input_top=tuple(tuple(TopLogprob(t, p) for t, p in score.top) for score in scores),
        )


def from_submit(
    message: Submit, *, key: int, capacity: int, eos_token_ids: tuple[int, ...]
) -> Request:
    """The record of a new request; ``capacity`` in tokens bounds its answer."""
    eos = () if message.sampling.ignore_eos else eos_token_ids
    prompt = np.frombuffer(message.input_ids, dtype="<i4").astype(np.int64)
    return Request(
        key=key,
        rid=message.rid,
        prompt=prompt,
        sampling=message.sampling,
        hop=message.hop,
        digest=hashlib.blake2b(message.input_ids, digest_size=DIGEST_BYTES).digest(),
        max_new=min(message.sampling.max_new_tokens, capacity - len(prompt) + 1),
        received_s=message.received_s,
        stops=frozenset((*message.sampling.stop_token_ids, *eos)),
    )
