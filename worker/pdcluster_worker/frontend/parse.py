"""An HTTP body and a field table make `Params`; every refusal names the field."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.frontend.fields import IGNORED, OVERRIDES, Field
from pdcluster_worker.frontend.params import Params

_SHOWN_CHARS_MAX: Final = 80
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def parse_object(body: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> dict[str, Any]:
    """The JSON object of a body, with what ``headers`` override; BadRequest otherwise."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {_shown(value)}")
    for override in OVERRIDES:
        text = headers.get(override.header)
        if text is not None:
            value[override.name] = _header_value(override.header, text, integer=override.integer)
    return value


def _header_value(header: str, text: str, *, integer: bool) -> int | str:
    try:
        return int(text) if integer else text
    except ValueError as error:
        message = f"{header}: {_shown(text)} is not allowed, must be an integer"
        raise BadRequest(message, field=header) from error


def read_params(
    body: dict[str, Any], table: Sequence[Field], *, defaults: Params | None = None
) -> Params:
    """Read the fields of ``table``; ``defaults`` are for absent and null ones."""
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field in table:
        value = _lookup(body, field.name)
        if value is None:
            continue
        try:
            converted = field.read(value)
        except ValueError as error:
            message = f"{field.name}: {_shown(value)} is not allowed, must be {error}"
            raise BadRequest(message, field=field.name) from error
        if field.to != IGNORED:
            found.setdefault(field.to, converted)
            names.setdefault(field.to, field.name)
    base = Params() if defaults is None else defaults
    return msgspec.structs.replace(base, names=base.names | names, **found)


def spread(body: dict[str, Any], *, count: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """A body for each of ``count`` prompts: of the fields ``names``, a list has one value each."""
    listed: dict[str, list[Any]] = {}
    for name in names:
        value = body.get(name)
        if not isinstance(value, list) or (len(value) == 1 and count > 1):
            continue
        if len(value) != count:
            message = f"{name}: a list of {len(value)}, must be one for each of {count} prompts"
            raise BadRequest(message, field=name)
        listed[name] = value
    return [body | {name: of[index] for name, of in listed.items()} for index in range(count)]


def _lookup(body: dict[str, Any], name: str) -> object:
    """``a.b`` is field b of object a, which may also be the only item of a list."""
    head, dot, tail = name.partition(".")
    value: object = body.get(head)
    if not dot or value is None:
        return value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise BadRequest(f"{head}: {_shown(value)} is not allowed, must be an object", field=head)
    return _lookup(value, tail)


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"
