"""What one HTTP body asks for, after its fields are read: the same for every API."""

from typing import Any

import msgspec


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Field tables (`fields`) fill it; a default here is what an absent or null field means."""

    # what to answer
    messages: tuple[dict[str, Any], ...] = ()
    prompts: tuple[str | tuple[int, ...], ...] = ()
    prompt_field: str = "prompt"  # what the client calls it, for messages
    rid: str | None = None
    # how to answer
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
    # the other leg
    bootstrap_host: tuple[str | None, ...] = ()
    bootstrap_port: tuple[int | None, ...] = ()
    bootstrap_room: tuple[int | None, ...] = ()
