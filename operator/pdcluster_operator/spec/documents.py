"""YAML text to plain data, with what the YAML library would let pass.

A key written twice is the usual slip of a long manifest, and the library keeps the last one without
a word. Anchors are allowed as long as what they expand to stays small and ends. Dates stay text, as
for the API server. What JSON cannot say (other tags, keys that are no text, numbers without bounds)
is refused here, where the line is known: everything behind reads and writes JSON.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from pdcluster_api.schema import Problem

VALUES_MAX: Final = 100_000  # of one document, with every alias written out
NUMBER_CHARS_MAX: Final = 40
_TAG: Final = "tag:yaml.org,2002:"
_JSON_TAGS: Final = frozenset(
    f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")
)
_KEY_TAGS: Final = (f"{_TAG}str", f"{_TAG}merge")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class _Loader(yaml.SafeLoader):
    """Reads a date as the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class NotYaml(ValueError):
    """The text is no YAML, or YAML that stands for no data."""


def read_documents(text: str) -> tuple[list[Any], list[Problem]]:
    """Return the documents that are not empty, and the problems that lie in how they are written;
    raises `NotYaml`."""
    documents, problems = [], []
    try:
        loader = _Loader(text)
        while loader.check_node() and (node := loader.get_node()) is not None:
            walk = _Walk()
            problems += walk.problems(node, "")
            if walk.readable:
                documents.append(loader.construct_document(node))
    except yaml.YAMLError as error:
        raise NotYaml(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise NotYaml("nested too deeply") from error
    # The library lets these out of a scalar that is not what its tag or form promises.
    except (ValueError, LookupError, AttributeError) as error:
        raise NotYaml(f"a value is not what its form promises: {error}") from error
    return [item for item in documents if item is not None], problems


class _Walk:
    """One pass over a document's nodes, each alias followed every time until the limit."""

    def __init__(self) -> None:
        self.values = 0
        self.readable = True  # as plain data; else there is nothing to decode
        self._open: set[int] = set()
        self._seen: set[int] = set()

    def problems(self, node: yaml.Node, path: str) -> list[Problem]:
        """Return what is wrong with the node and below."""
        found = list(self._below(node, path))
        if self.values > VALUES_MAX:
            limit = f"must be at most {VALUES_MAX} values"
            self.readable = False
            found.append(Problem(path, "too large once its aliases are written out", limit))
        return found

    def _below(self, node: yaml.Node, path: str) -> Iterator[Problem]:
        self.values += 1
        if self.values > VALUES_MAX:
            return
        if id(node) in self._open:
            self.readable = False
            yield Problem(path, f"an alias to what it is in (line {_line(node)})", "must end")
            return
        if unfit := _unfit(node):
            self.readable = False
            yield Problem(path, f"{unfit} (line {_line(node)})", "must be what JSON can say")
            return
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            if id(node) not in self._seen:
                yield from _duplicates(node, path)
            for key, value in node.value:
                if key.tag not in _KEY_TAGS:
                    self.readable = False
                    found = f"the key {key.value!r} is read as no text (line {_line(key)})"
                    yield Problem(path, found, "must be written in quotes")
                    continue
                yield from self._below(value, _join(path, key))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield from self._below(item, f"{path}[{index}]")
        self._open.discard(id(node))
        self._seen.add(id(node))


def _duplicates(node: yaml.MappingNode, path: str) -> Iterator[Problem]:
    first: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = (key.tag, key.value)
        if name in first:
            found = f"written twice, on line {first[name]} and on line {_line(key)}"
            yield Problem(_join(path, key), found, "must be written once")
        first.setdefault(name, _line(key))


def _unfit(node: yaml.Node) -> str:
    """Say why a value is nothing that JSON has; nothing when it is."""
    kind = node.tag.removeprefix(_TAG)
    if node.tag not in _JSON_TAGS:
        return f"a value with the tag {node.tag.replace(_TAG, '!!')}"
    if kind in ("int", "float"):
        if len(node.value) > NUMBER_CHARS_MAX:
            return f"a number of {len(node.value)} characters"
        if kind == "float" and node.value.lower().lstrip("+-") in (".inf", ".nan"):
            return f"the number {node.value}"
    return ""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _join(path: str, key: yaml.Node) -> str:
    name = str(key.value)
    if not _PLAIN_KEY.fullmatch(name):
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name
