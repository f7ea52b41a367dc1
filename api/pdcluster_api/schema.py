"""Frozen dataclasses from and to JSON, with every problem reported at once.

The dataclass is the single source: `decode` reads JSON-like data into it, `encode` writes it back,
`json_schema` describes it for the CustomResourceDefinition. Keys are camelCase in JSON and
snake_case in Python. A field declared with `field(...)` carries its own documentation and bounds.

Supported types: nested dataclasses, `str`, `int`, `float`, `bool`, string enums, `X | None`,
`tuple[X, ...]`, `dict[str, X]`, and `Any` for data that somebody else validates.
"""

import dataclasses
import difflib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar

T = TypeVar("T")

_BOUNDS: Final = "pdcluster"  # key of our entry in dataclass field metadata
_SHOWN_CHARS_MAX: Final = 60  # of an offending value in a message
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SCALARS: Final[dict[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}
_JSON_TYPES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Documentation and limits of one field."""

    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    pattern: str | None = None


def field(
    doc: str,
    default: Any = MISSING,
    *,
    factory: Callable[[], Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
    pattern: str | None = None,
) -> Any:
    """Declare a documented, bounded dataclass field; without a default it is required."""
    metadata = {_BOUNDS: Bounds(doc, minimum, maximum, choices, pattern)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what was found, what is allowed instead."""

    path: str
    found: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.found}: {self.allowed}"


class SchemaError(ValueError):
    """The data does not fit; `problems` holds every reason, in document order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def decode(cls: type[T], value: object, *, path: str = "") -> T:
    """Read `value` as `cls`, or raise one `SchemaError` that lists everything wrong with it."""
    reader = _Reader()
    result = reader.read(cls, value, path=path, bounds=Bounds(""))
    if reader.problems:
        raise SchemaError(tuple(reader.problems))
    return typing.cast("T", result)


def encode(value: Any, *, omit_defaults: bool = False) -> Any:
    """Turn a dataclass into JSON-like data that `decode` reads back as an equal object."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            camel(item.name): encode(member, omit_defaults=omit_defaults)
            for item in dataclasses.fields(value)
            for member in (_member(value, item.name),)
            if not (omit_defaults and _default_of(item) == member)
        }
    if isinstance(value, Mapping):
        return {str(key): encode(item, omit_defaults=omit_defaults) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, omit_defaults=omit_defaults) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def json_schema(cls: type) -> dict[str, Any]:
    """Return an OpenAPI v3 *structural* schema of `cls`, as a CustomResourceDefinition wants it."""
    hints = _hints(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for item in dataclasses.fields(cls):
        schema = _type_schema(hints[item.name], _bounds_of(item))
        default = _default_of(item)
        if default is MISSING:
            required.append(camel(item.name))
        elif default is not None:
            schema["default"] = encode(default, omit_defaults=True)
        properties[camel(item.name)] = schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    if cls.__doc__:
        result["description"] = _first_paragraph(cls.__doc__)
    return result


def camel(name: str) -> str:
    """`kv_pages` -> `kvPages`."""
    head, *tail = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


class _Reader:
    """Walks types and data together and collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, kind: Any, value: object, *, path: str, bounds: Bounds) -> Any:
        if kind is Any or kind is object:
            return value
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self._read_dataclass(kind, value, path)
        origin = typing.get_origin(kind)
        if origin in (typing.Union, types.UnionType):
            return self._read_optional(kind, value, path, bounds)
        if origin is tuple:
            return self._read_tuple(kind, value, path, bounds)
        if origin is dict:
            return self._read_dict(kind, value, path, bounds)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return self._read_enum(kind, value, path)
        return self._read_scalar(kind, value, path, bounds)

    def _refuse(self, path: str, value: object, allowed: str) -> None:
        self.problems.append(Problem(path, f"{_shown(value)} is not allowed", f"must be {allowed}"))

    def _read_dataclass(self, cls: type, value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            self._refuse(path, value, "an object")
            return None
        before = len(self.problems)
        hints = _hints(cls)
        fields = {camel(item.name): item for item in dataclasses.fields(cls)}
        for key in value:
            if key not in fields:
                self._unknown(_join(path, str(key)), str(key), tuple(fields))
        members: dict[str, Any] = {}
        for key, item in fields.items():
            kind, bounds, given = hints[item.name], _bounds_of(item), value.get(key)
            has_default = _default_of(item) is not MISSING
            # Like the API server: null in a field that cannot be null means "not given".
            if given is None and (key not in value or not _is_optional(kind)):
                if not has_default:
                    allowed = f"must be {_expected(kind, bounds)}"
                    self.problems.append(Problem(_join(path, key), "missing", allowed))
                continue
            members[item.name] = self.read(kind, given, path=_join(path, key), bounds=bounds)
        if len(self.problems) > before:
            return None
        try:
            return cls(**members)
        except ValueError as error:  # the class's own __post_init__ refuses the combination
            self.problems.append(Problem(path, "not allowed", str(error)))
            return None

    def _unknown(self, path: str, key: str, known: tuple[str, ...]) -> None:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
        self.problems.append(Problem(path, "unknown field", hint))

    def _read_optional(self, kind: Any, value: object, path: str, bounds: Bounds) -> Any:
        if value is None:
            return None
        return self.read(_without_none(kind), value, path=path, bounds=bounds)

    def _read_tuple(self, kind: Any, value: object, path: str, bounds: Bounds) -> Any:
        if not isinstance(value, list | tuple):
            return self._refuse(path, value, "a list")
        item = typing.get_args(kind)[0]
        return tuple(
            self.read(item, member, path=f"{path}[{index}]", bounds=bounds)
            for index, member in enumerate(value)
        )

    def _read_dict(self, kind: Any, value: object, path: str, bounds: Bounds) -> Any:
        if not isinstance(value, Mapping):
            return self._refuse(path, value, "an object")
        item = typing.get_args(kind)[1]
        result: dict[str, Any] = {}
        for key, member in value.items():
            if isinstance(key, str):
                result[key] = self.read(item, member, path=_join(path, key), bounds=bounds)
            else:
                self._refuse(_join(path, str(key)), key, "a string as key")
        return result

    def _read_enum(self, kind: type[StrEnum], value: object, path: str) -> StrEnum | None:
        names = tuple(member.value for member in kind)
        if isinstance(value, str) and value in names:
            return kind(value)
        self._refuse(path, value, _one_of(names, value))
        return None

    def _read_scalar(self, kind: type, value: object, path: str, bounds: Bounds) -> Any:
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            return self._refuse(path, value, _expected(kind, bounds))
        if not _within(value, bounds):
            given = value if bounds.choices else None
            return self._refuse(path, value, _limits(bounds, given) or _SCALARS[kind])
        return value


def _within(value: Any, bounds: Bounds) -> bool:
    if isinstance(value, str):
        fits = bounds.pattern is None or re.fullmatch(bounds.pattern, value) is not None
        return fits and (bounds.choices is None or value in bounds.choices)
    above = bounds.minimum is None or value >= bounds.minimum
    return above and (bounds.maximum is None or value <= bounds.maximum)


def _limits(bounds: Bounds, given: object = None) -> str:
    """Say the bounds alone: `>= 0 and <= 10`."""
    if bounds.choices is not None:
        return _one_of(bounds.choices, given)
    if bounds.pattern is not None:
        return f"text that matches {bounds.pattern}"
    low = [] if bounds.minimum is None else [f">= {bounds.minimum:g}"]
    high = [] if bounds.maximum is None else [f"<= {bounds.maximum:g}"]
    return " and ".join(low + high)


def _one_of(names: tuple[str, ...], given: object) -> str:
    near = difflib.get_close_matches(given, names, n=1) if isinstance(given, str) else []
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f"one of {', '.join(names)}{hint}"


def _expected(kind: Any, bounds: Bounds) -> str:
    """Say type and bounds: `an integer >= 0`."""
    kind = _without_none(kind)
    if bounds.choices is not None:
        return _limits(bounds)
    if typing.get_origin(kind) is tuple:
        return "a list"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _one_of(tuple(member.value for member in kind), None)
    if bounds.pattern is not None:
        return _limits(bounds)
    return f"{_SCALARS.get(kind, 'an object')} {_limits(bounds)}".rstrip()


def _type_schema(kind: Any, bounds: Bounds) -> dict[str, Any]:
    schema = _bare_schema(kind, bounds)
    if bounds.doc:
        schema["description"] = bounds.doc
    for key, limit in (("minimum", bounds.minimum), ("maximum", bounds.maximum)):
        if limit is not None:
            schema[key] = int(limit) if schema.get("type") == "integer" else limit
    if bounds.choices is not None:
        schema["enum"] = list(bounds.choices)
    if bounds.pattern is not None:
        schema["pattern"] = f"^(?:{bounds.pattern})$"  # the API server searches, we match fully
    return schema


def _bare_schema(kind: Any, bounds: Bounds) -> dict[str, Any]:
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return json_schema(kind)
    if _is_optional(kind):
        return _bare_schema(_without_none(kind), bounds) | {"nullable": True}
    if origin is tuple:
        return {"type": "array", "items": _bare_schema(typing.get_args(kind)[0], Bounds(""))}
    if origin is dict:
        item = typing.get_args(kind)[1]
        if item is Any or item is object:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": _bare_schema(item, Bounds(""))}
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [member.value for member in kind]}
    return {"type": _JSON_TYPES[kind]}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _bounds_of(item: "dataclasses.Field[Any]") -> Bounds:
    bounds = item.metadata.get(_BOUNDS)
    return bounds if isinstance(bounds, Bounds) else Bounds("")


def _default_of(item: "dataclasses.Field[Any]") -> Any:
    """Return the default value, or MISSING."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _member(owner: object, name: str) -> Any:
    return getattr(owner, name)


def _is_optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind) and typing.get_origin(kind) in (
        typing.Union,
        types.UnionType,
    )


def _without_none(kind: Any) -> Any:
    """`X | None` -> `X`; anything else as it is. Wider unions are not supported."""
    if not _is_optional(kind):
        return kind
    (only,) = (arg for arg in typing.get_args(kind) if arg is not type(None))
    return only


def _join(path: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f'{path}["{key}"]'


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.split("\n\n", maxsplit=1)[0].split())
