"""The request fields of every API, as tables: name in JSON, where it goes, what is allowed, why.

The parser (`parse`) and the documentation are made from them. A dotted name is a field of an
object. null is the same as absent; fields in no table are ignored. Where two fields go to one
place, the one listed first wins.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from pdcluster_worker.frontend.readers import (
    Checked,
    Flag,
    Integer,
    Listing,
    Nullable,
    Number,
    Only,
    Reader,
    Text,
)

LOGPROBS_MAX: Final = 128  # what a metadata row holds (spec B.4)
STOPS_MAX: Final = 64
STOP_CHARS_MAX: Final = 1024
TOKENS_MAX: Final = 1 << 24
PROMPT_CHARS_MAX: Final = 1 << 24  # the body limit is what binds
MESSAGES_MAX: Final = 10_000
ROOM_MAX: Final = 2**63 - 1
IGNORED: Final = ""  # ``to`` of a field that is checked and then changes nothing
BATCH_MAX: Final = 256  # prompts in one HTTP call
SAMPLES_MAX: Final = 128  # of one prompt
SCORES_MAX: Final = 1 << 20  # logprobs of one prompt, the k best included
REQUESTS_MAX: Final = 1024  # prompts times samples of one HTTP call
BIASES_MAX: Final = 1024

_HOST: Final = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
_TOKEN: Final = Integer(0, 2**31 - 1)
_TOKENS: Final = Listing(_TOKEN, TOKENS_MAX)
_TEXTS: Final = Listing(Text(PROMPT_CHARS_MAX), BATCH_MAX, scalar=True)
_LEG_VALUES_MAX: Final = REQUESTS_MAX


@dataclass(frozen=True, slots=True)
class Field:
    """One row: ``to`` is the attribute of `params.Params`, or `IGNORED`."""

    name: str
    to: str
    read: Reader
    doc: str


def _host(value: object) -> str:
    if not isinstance(value, str) or not _HOST.fullmatch(value):
        raise ValueError("a host name or address")
    return value


def _message(value: object) -> dict[str, Any]:
    """One message with plain text as its content."""
    if not isinstance(value, dict) or not isinstance(role := value.get("role"), str):
        raise ValueError("an object with a string `role`")
    content = value.get("content")
    if isinstance(content, list):
        content = "".join(map(_part, content))
    if content is not None and not isinstance(content, str):
        raise ValueError("an object whose `content` is a string or a list of text parts")
    return {"role": role, "content": content or ""}


def _part(value: object) -> str:
    if isinstance(value, dict) and value.get("type") == "text":
        text = value.get("text")
        if isinstance(text, str):
            return text
    raise ValueError("an object whose `content` parts are {type: text, text: string}")


_IDS_SHOWN: Final = f"token ids, or a list of at most {BATCH_MAX} lists of them"
_PROMPTS_SHOWN: Final = f"text, token ids, or a list of at most {BATCH_MAX} of either"


def _token_lists(value: object) -> tuple[tuple[int, ...], ...]:
    """One list of token ids, or a list of such lists."""
    nested = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    try:
        return Listing(_TOKENS, BATCH_MAX)(value) if nested else (_TOKENS(value),)
    except ValueError as error:
        raise ValueError(_IDS_SHOWN) from error


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    """A prompt or a list of prompts, each text or token ids."""
    if isinstance(value, list) and (not value or not isinstance(value[0], str)):
        return _token_lists(value)
    return _TEXTS(value)


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """``{"token id": bias}``."""
    if not isinstance(value, dict) or len(value) > BIASES_MAX:
        raise ValueError(_BIASES_SHOWN)
    try:
        return tuple(sorted((_TOKEN(int(token)), _BIAS(bias)) for token, bias in value.items()))
    except ValueError as error:
        raise ValueError(_BIASES_SHOWN) from error


_BIAS: Final = Number(-100, 100)
_BIASES_SHOWN: Final = (
    f"an object of at most {BIASES_MAX:,} token ids, each with {_BIAS.shown} as its value"
)
_SEED: Final = Integer(-(2**63), 2**64 - 1)
_RANK: Final = Listing(Nullable(Integer(0, 0)), _LEG_VALUES_MAX, scalar=True)
_MESSAGE: Final = Checked("an object {role, content}", _message)
_COUNT: Final = Integer(1, TOKENS_MAX)
_TOP: Final = Integer(0, LOGPROBS_MAX)
_STOPS: Final = Listing(Text(STOP_CHARS_MAX, 1), STOPS_MAX, scalar=True)
_NOTHING: Final[tuple[object, ...]] = ([], {})

LEG_FIELDS: Final = (
    Field(
        "bootstrap_host",
        "bootstrap_host",
        Listing(Nullable(Checked("a host name or address", _host)), _LEG_VALUES_MAX, scalar=True),
        "Address of the prefill worker's bootstrap server; needed on decode. 2.2.2.2: nobody's, "
        "one token is computed without a peer.",
    ),
    Field(
        "bootstrap_port",
        "bootstrap_port",
        Listing(Nullable(Integer(1, 65535)), _LEG_VALUES_MAX, scalar=True),
        "Its port; null means this worker's own configured port.",
    ),
    Field(
        "bootstrap_room",
        "bootstrap_room",
        Listing(Nullable(Integer(0, ROOM_MAX)), _LEG_VALUES_MAX, scalar=True),
        "Names the hand-off; needed on prefill and decode. 0 is taken as 2^63-1 on both legs. "
        "Request i of a call has the i-th room of a list, or room + i.",
    ),
    Field(
        "bootstrap_pair_key",
        IGNORED,
        Listing(Nullable(Text(256)), _LEG_VALUES_MAX, scalar=True),
        "Accepted, means nothing here.",
    ),
    Field("routed_dp_rank", IGNORED, _RANK, "Data-parallel rank on this worker, which has one."),
    Field("data_parallel_rank", IGNORED, _RANK, "The same, the older name."),
    Field("disagg_prefill_dp_rank", IGNORED, _RANK, "Data-parallel rank on the prefill."),
)


@dataclass(frozen=True, slots=True)
class Override:
    """A header that replaces a field of the body."""

    header: str
    name: str
    integer: bool = False


OVERRIDES: Final = (
    Override("x-override-rid", "rid"),
    Override("x-override-bootstrap-host", "bootstrap_host"),
    Override("x-override-bootstrap-port", "bootstrap_port", integer=True),
    Override("x-override-bootstrap-room", "bootstrap_room", integer=True),
    Override("x-override-routed-dp-rank", "routed_dp_rank", integer=True),
    Override("x-override-disagg-prefill-dp-rank", "disagg_prefill_dp_rank", integer=True),
    Override("x-override-priority", "priority", integer=True),
    Override("x-override-conversation-id", "conversation_id"),
)

_COMMON: Final = (
    *LEG_FIELDS,
    Field("stream", "stream", Flag(), "Answer with server-sent events."),
    Field(
        "rid",
        "rid",
        Text(128, 1),
        "Name of the request; unique among the live ones. Several "
        "requests of one call are told apart by -0, -1, ... behind it.",
    ),
    Field("priority", IGNORED, Integer(-(2**31), 2**31 - 1), "Accepted, means nothing here."),
    Field("return_handoff", "return_handoff", Flag(), "Tell what moving the KV cost."),
)

# Refused, not ignored: an answer that does not obey them would look as if it did.
_CONSTRAINTS: Final = ("regex", "ebnf", "json_schema", "structural_tag", "stop_regex")


def _sampling(prefix: str = "") -> tuple[Field, ...]:
    """Rows that mean the same in all APIs; /generate has them inside ``sampling_params``."""
    return (
        Field(f"{prefix}temperature", "temperature", Number(0, 100), "0 is greedy."),
        Field(f"{prefix}top_p", "top_p", Number(None, 1, above=0), "Nucleus sampling."),
        Field(f"{prefix}top_k", "top_k", Integer(-1, 2**31 - 1), "-1 or 0: all tokens."),
        Field(f"{prefix}min_p", "min_p", Number(0, 1), "Least probability beside the best."),
        Field(f"{prefix}seed", "seed", _SEED, "Equal seeds, equal text."),
        Field(f"{prefix}sampling_seed", "seed", _SEED, "The same, SGLang's name."),
        Field(f"{prefix}stop", "stop", _STOPS, "Strings that end the answer."),
        Field(
            f"{prefix}stop_token_ids",
            "stop_token_ids",
            Listing(_TOKEN, STOPS_MAX),
            "Tokens that end the answer.",
        ),
        Field(f"{prefix}ignore_eos", "ignore_eos", Flag(), "Go on after the model's own end."),
        Field(f"{prefix}no_stop_trim", "keep_stop", Flag(), "Leave the stop in the text."),
        Field(f"{prefix}skip_special_tokens", "skip_special", Flag(), "Leave them out."),
        Field(
            f"{prefix}n", "n", Integer(1, SAMPLES_MAX), "Samples per prompt; sample i has seed + i."
        ),
        Field(
            f"{prefix}frequency_penalty",
            "frequency_penalty",
            Number(-2, 2),
            "Taken off a token's logit for each time that it is in the answer.",
        ),
        Field(
            f"{prefix}presence_penalty",
            "presence_penalty",
            Number(-2, 2),
            "Taken off a token's logit once it is in the answer.",
        ),
        Field(
            f"{prefix}repetition_penalty",
            "repetition_penalty",
            Number(None, 2, above=0),
            "Above 1: less of what is in prompt or answer; below: more.",
        ),
        Field(
            f"{prefix}logit_bias",
            "logit_bias",
            Checked(_BIASES_SHOWN, _biases),
            "Added to the logits of these tokens.",
        ),
        *(
            Field(f"{prefix}{name}", IGNORED, Only(("",)), "A grammar for the answer.")
            for name in _CONSTRAINTS
        ),
    )


SAMPLING_FIELDS: Final = _sampling()

_OPENAI: Final = (
    *_COMMON,
    *SAMPLING_FIELDS,
    Field("max_completion_tokens", "max_new_tokens", _COUNT, "Longest answer, in tokens."),
    Field("max_tokens", "max_new_tokens", _COUNT, "The same, the older name."),
    Field(
        "min_tokens",
        "min_new_tokens",
        Integer(0, TOKENS_MAX),
        "Tokens before stop tokens or strings count.",
    ),
    Field("stream_options.include_usage", "include_usage", Flag(), "A last event with usage."),
)

CHAT_FIELDS: Final = (
    Field("messages", "messages", Listing(_MESSAGE, MESSAGES_MAX), "The conversation so far."),
    *_OPENAI,
    Field("logprobs", "logprobs", Flag(), "Logprobs of the answer's tokens."),
    Field("top_logprobs", "top_logprobs", _TOP, "And of the k best at each place."),
    Field("tools", IGNORED, Only(_NOTHING), "Functions that the model may call."),
    Field(
        "response_format",
        IGNORED,
        Only(({"type": "text"},)),
        "Shape of the answer.",
    ),
)

COMPLETION_FIELDS: Final = (
    Field("prompt", "prompts", Checked(_PROMPTS_SHOWN, _prompts), "What to continue."),
    *_OPENAI,
    Field("logprobs", "top_logprobs", _TOP, "Logprobs of the tokens and of the k best."),
    Field("echo", "echo", Flag(), "Begin the text with the prompt."),
    Field("best_of", IGNORED, Only((0, 1)), "Samples to choose from."),
    Field("suffix", IGNORED, Only(("",)), "Text after the answer."),
)

_GENERATE_SAMPLING: Final = "sampling_params."

GENERATE_FIELDS: Final = (
    Field("text", "prompts", _TEXTS, "The prompt as text; one of text and input_ids."),
    Field("input_ids", "prompts", Checked(_IDS_SHOWN, _token_lists), "The prompt as token ids."),
    *_COMMON,
    *_sampling(_GENERATE_SAMPLING),
    Field(f"{_GENERATE_SAMPLING}max_new_tokens", "max_new_tokens", _COUNT, "Longest answer."),
    Field(
        f"{_GENERATE_SAMPLING}min_new_tokens",
        "min_new_tokens",
        Integer(0, TOKENS_MAX),
        "Tokens before stop tokens or strings count.",
    ),
    Field("return_logprob", "logprobs", Flag(), "Logprobs of the answer's tokens."),
    Field("top_logprobs_num", "top_logprobs", _TOP, "And of the k best at each place."),
    Field("return_text_in_logprobs", "text_in_logprobs", Flag(), "Token text beside its id."),
    *(
        Field(name, IGNORED, Only(_NOTHING), "What the prompt refers to beside text.")
        for name in ("image_data", "audio_data", "video_data")
    ),
    Field(
        "logprob_start_len",
        "logprob_start",
        Integer(-1, TOKENS_MAX),
        "Logprobs of the prompt from this token on, too; -1: none.",
    ),
)

# Fields of /generate that may be lists, with a value for each prompt of a call.
GENERATE_LISTS: Final = (
    "text",
    "rid",
    "sampling_params",
    "return_logprob",
    "top_logprobs_num",
    "logprob_start_len",
    "return_text_in_logprobs",
    "priority",
)

TOKENIZE_FIELDS: Final = (
    Field("prompt", "prompts", _TEXTS, "The text, or a list of texts."),
    Field("messages", "messages", Listing(_MESSAGE, MESSAGES_MAX), "Or a conversation."),
    Field("add_special_tokens", "add_special", Flag(), "Put in front what the model wants there."),
)

DETOKENIZE_FIELDS: Final = (
    Field("tokens", "prompts", Checked(_IDS_SHOWN, _token_lists), "The tokens."),
    Field("skip_special_tokens", "skip_special", Flag(), "Leave them out."),
)

ABORT_FIELDS: Final = (
    Field("rid", "rid", Text(128, 1), "The request to end: its own name, or its call's."),
    Field("prefix", "prefix", Flag(), "End all requests whose name begins with `rid`."),
    Field("abort_all", "abort_all", Flag(), "End all requests of this worker."),
    Field("abort_message", "abort_message", Text(1024), "The reason, for the clients."),
)
