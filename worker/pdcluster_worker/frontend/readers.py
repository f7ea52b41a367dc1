"""Readers of single JSON values: each checks one kind of value and says what is allowed.

A reader raises ValueError with the text after "must be"; `shown` is the same text for the docs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Reader(Protocol):
    """Checks and converts one value."""

    @property
    def shown(self) -> str:
        """What is allowed: "an integer >= 1"."""
        ...

    def __call__(self, value: object) -> Any:
        """The converted value, or ValueError."""
        ...


def _limits(low: float | None, high: float | None) -> str:
    parts = [f">= {low:,}" if low is not None else "", f"<= {high:,}" if high is not None else ""]
    return " and ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Integer:
    """A JSON integer; true and false are none."""

    minimum: int | None = None
    maximum: int | None = None

    @property
    def shown(self) -> str:
        return f"an integer {_limits(self.minimum, self.maximum)}".rstrip()

    def __call__(self, value: object) -> int:
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(self.shown)
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite JSON number. ``above`` is an exclusive lower bound."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None

    @property
    def shown(self) -> str:
        above = f"> {self.above:g} " if self.above is not None else ""
        between = "and " if above and self.maximum is not None else ""
        return f"a number {above}{between}{_limits(self.minimum, self.maximum)}".rstrip()

    def __call__(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(self.shown)
        if not -1e300 <= value <= 1e300:  # also refuses NaN and integers that no float holds
            raise ValueError(self.shown)
        low = self.minimum is None or value >= self.minimum
        high = self.maximum is None or value <= self.maximum
        if not (low and high and (self.above is None or value > self.above)):
            raise ValueError(self.shown)
        return float(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    shown: str = "true or false"

    def __call__(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(self.shown)
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A string of bounded length."""

    chars_max: int
    chars_min: int = 0

    @property
    def shown(self) -> str:
        return f"a string of {self.chars_min} to {self.chars_max:,} characters"

    def __call__(self, value: object) -> str:
        if not isinstance(value, str) or not self.chars_min <= len(value) <= self.chars_max:
            raise ValueError(self.shown)
        return value


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of bounded length; with ``scalar`` a bare item stands for a list of one."""

    item: Reader
    length_max: int
    scalar: bool = False

    @property
    def shown(self) -> str:
        bare = f"{self.item.shown}, or " if self.scalar else ""
        return f"{bare}a list of at most {self.length_max:,}, each {self.item.shown}"

    def __call__(self, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            if not self.scalar:
                raise ValueError(self.shown)
            return (self.item(value),)
        if len(value) > self.length_max:
            raise ValueError(self.shown)
        return tuple(self.item(item) for item in value)


@dataclass(frozen=True, slots=True)
class Nullable:
    """null inside a list."""

    item: Reader

    @property
    def shown(self) -> str:
        return f"null or {self.item.shown}"

    def __call__(self, value: object) -> Any:
        return None if value is None else self.item(value)


@dataclass(frozen=True, slots=True)
class Only:
    """A field that we do not implement yet: only the values that change nothing are accepted."""

    values: tuple[object, ...]

    @property
    def shown(self) -> str:
        return f"absent or one of {', '.join(map(repr, self.values))}: more is not supported yet"

    def __call__(self, value: object) -> None:
        # `True == 1` in Python, but a client that sends `n: true` means something else.
        same = (v for v in self.values if isinstance(v, bool) is isinstance(value, bool))
        if value not in same:
            raise ValueError(self.shown)


@dataclass(frozen=True, slots=True)
class Checked:
    """Anything that ``check`` lets pass; it raises ValueError(what is allowed)."""

    shown: str
    check: Callable[[object], Any]

    def __call__(self, value: object) -> Any:
        return self.check(value)
