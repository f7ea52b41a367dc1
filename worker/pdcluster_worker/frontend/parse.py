"""An HTTP body and a field table make `Params`; every refusal names the field."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.frontend.fields import IGNORED, Field
from pdcluster_worker.frontend.params import Params

_SHOWN_CHARS_MAX = 80


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; BadRequest otherwise."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {_shown(value)}")
    return value


def read_params(
    body: dict[str, Any], table: Sequence[Field], *, defaults: Params | None = None
) -> Params:
    """Read the fields of ``table``; ``defaults`` are for absent and null ones."""
    found: dict[str, Any] = {}
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
    return msgspec.structs.replace(Params() if defaults is None else defaults, **found)


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
