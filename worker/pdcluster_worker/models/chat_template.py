"""Chat templates as model authors write them: Jinja, in a sandbox, with the customary helpers.

Compatible with what templates are written against (Hugging Face's environment): trimmed blocks,
``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, loop controls and the
``generation`` block, which marks an answer for training and renders as its body.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pdcluster_worker.core.clock import Clock

FALLBACK = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""For a model that brings no template: one ``role: content`` line per message."""


class ChatTemplate:
    """A compiled template. Pure but for ``strftime_now``, which asks ``clock``."""

    def __init__(
        self, source: str | None, *, special_tokens: Mapping[str, str], clock: Clock
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise

        def strftime_now(form: str) -> str:
            return datetime.fromtimestamp(clock.wall()).strftime(form)

        environment.globals["strftime_now"] = strftime_now
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(FALLBACK if source is None else source)
        except TemplateError as error:
            raise ValueError(f"the chat template does not compile: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. ``extra`` are further template variables (``tools``, ...).

        Keys of a message whose value is None are left out, as templates test for presence.
        ValueError says why the template refuses these messages.
        """
        variables: dict[str, Any] = {"tools": None, "documents": None, **self._special_tokens}
        variables |= extra or {}
        variables["messages"] = [
            {key: value for key, value in message.items() if value is not None}
            for message in messages
        ]
        variables["add_generation_prompt"] = add_generation_prompt
        try:
            return self._template.render(variables)
        except (TemplateError, TypeError, KeyError, AttributeError) as error:
            # The last three: a template that trips over what a client sent, like content=[...].
            raise ValueError(f"the chat template refuses these messages: {error}") from error


class _GenerationBlock(Extension):
    """``{% generation %}...{% endgeneration %}``, transparent."""

    tags = {"generation"}  # noqa: RUF012 - the library's own class attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body in its place."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> str:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001 - templates pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    *,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
