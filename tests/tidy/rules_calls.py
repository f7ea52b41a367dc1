"""Calls that the product does without, each with what to write instead."""

import ast
from collections.abc import Iterator, Sequence

from tests.tidy.source import Offence, Source, product

CLOCK = {"time", "sleep", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"}
ENVIRONMENT = {"environ", "environb", "getenv", "putenv", "unsetenv"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
WIDE = {"Exception", "BaseException"}


def dotted(node: ast.expr) -> str:
    """``a.b.c`` for such an expression, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def _calls(source: Source, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted(node.func) == name:
            yield node


def _from_imports(source: Source, module: str) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module == module and not node.level:
            yield node


def _attributes(source: Source) -> Iterator[tuple[ast.Attribute, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            yield node, name


def has_attribute(sources: Sequence[Source]) -> Iterator[Offence]:
    """No ``hasattr``, no ``getattr`` with a constant name."""
    for source in product(sources):
        for call in _calls(source, "hasattr"):
            yield source.offence(call, "hasattr: say in the type what may be there")
        for call in _calls(source, "getattr"):
            if len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
                yield source.offence(call, "getattr with a constant: write the attribute")


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    if caught is None:
        return True
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(dotted(kind) in WIDE for kind in types)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)


def wide_except(sources: Sequence[Source]) -> Iterator[Offence]:
    """``except Exception`` only in the outermost loops, or where it ends in a ``raise``."""
    for source in product(sources):
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            if _catches_everything(node) and not _raises_again(node):
                yield source.offence(node, "catches everything: name the exceptions")


def reads_clock(sources: Sequence[Source]) -> Iterator[Offence]:
    """Only the clock modules read a clock or sleep."""
    for source in product(sources):
        for node in _from_imports(source, "time"):
            yield source.offence(node, "import time: take a Clock")
        for attribute, name in _attributes(source):
            module, _, last = name.rpartition(".")
            if (module == "time" and last in CLOCK) or (
                module.endswith("datetime") and last in {"now", "utcnow", "today"}
            ):
                yield source.offence(attribute, f"{name}: take a Clock")


def reads_environment(sources: Sequence[Source]) -> Iterator[Offence]:
    """Only the settings module of each side reads environment variables."""
    for source in product(sources):
        for node in _from_imports(source, "os"):
            if any(alias.name in ENVIRONMENT for alias in node.names):
                yield source.offence(node, "environment: read it in the settings module")
        for attribute, name in _attributes(source):
            if name.startswith("os.") and name.removeprefix("os.") in ENVIRONMENT:
                yield source.offence(attribute, f"{name}: read it in the settings module")


def unsafe_code(sources: Sequence[Source]) -> Iterator[Offence]:
    """No pickle or its kin, no ``eval``, no ``exec``: data never becomes code."""
    for source in product(sources):
        for call in (*_calls(source, "eval"), *_calls(source, "exec")):
            yield source.offence(call, f"{dotted(call.func)}: data must not become code")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names]
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if any(name.partition(".")[0] in UNSAFE_MODULES for name in names):
                    yield source.offence(node, f"{names[0]}: use msgspec or json")
