"""What one prompt of an HTTP body asks for, after its fields are read: the same for every API."""

from typing import Any

import msgspec


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Field tables (`fields`) fill it; a default here is what an absent or null field means."""

    names: dict[str, str] = {}  # attribute -> what the client calls it; for messages
    # what to answer
    messages: tuple[dict[str, Any], ...] = ()
    prompts: tuple[str | tuple[int, ...], ...] = ()  # one, once the call is split into its items
    add_special: bool = True
    rid: str | None = None
    # how to answer
    n: int = 1  # samples of the prompt
    echo: bool = False
    stream: bool = False
    include_usage: bool = False
    return_handoff: bool = False
    # sampling
    max_new_tokens: int | None = None  # None: up to the worker's capacity
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    keep_stop: bool = False
    skip_special: bool = True
    # logprobs
    logprobs: bool = False
    top_logprobs: int | None = None
    text_in_logprobs: bool = False
    logprob_start: int = -1  # of the prompt, from this token on; -1: none
    # which requests to end
    prefix: bool = False
    abort_all: bool = False
    abort_message: str = ""
    # the other leg: one value for the whole call, or one for each prompt or sample
    bootstrap_host: tuple[str | None, ...] = ()
    bootstrap_port: tuple[int | None, ...] = ()
    bootstrap_room: tuple[int | None, ...] = ()

    def name_of(self, attribute: str) -> str:
        """What the client calls it."""
        return self.names.get(attribute, attribute)
