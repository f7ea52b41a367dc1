"""Who imports what: libraries kept to one file, and modules that nobody uses."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from tests.tidy.source import PRODUCT, Offence, Source, product

REFERENCE = re.compile(r"pdcluster_\w+(?:\.\w+)*")  # in strings: registries, `python -m`
STARTED_BY_NAME = {"__init__", "__main__"}


def imported(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Every module name an import statement of the file can mean."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def _importers(
    sources: Sequence[Source], *, library: re.Pattern[str], message: str
) -> Iterator[Offence]:
    for source in product(sources):
        for node, name in imported(source):
            if library.fullmatch(name.partition(".")[0]):
                yield source.offence(node, message)
                break


def imports_nixl(sources: Sequence[Source]) -> Iterator[Offence]:
    """Exactly one file imports nixl: the transfer backend."""
    message = "imports nixl: go through core.ports.Transport"
    return _importers(sources, library=re.compile(r"nixl(_\w+)?"), message=message)


def imports_kopf(sources: Sequence[Source]) -> Iterator[Offence]:
    """At most two files import kopf: they wake the queue and do nothing else."""
    message = "imports kopf: it only wakes the queue, the work belongs in reconcile/"
    return _importers(sources, library=re.compile("kopf"), message=message)


def foreign_to_api(sources: Sequence[Source]) -> Iterator[Offence]:
    """The api imports the standard library, gRPC and protobuf: every image carries it."""
    allowed = sys.stdlib_module_names | {"pdcluster_api", "grpc", "google"}
    for source in product(sources):
        if source.path.startswith("api/"):
            for node, name in imported(source):
                if name.partition(".")[0] not in allowed:
                    yield source.offence(node, f"imports {name}: it belongs to one side")


def module_name(path: str) -> str:
    """``worker/pdcluster_worker/kv/rows.py`` -> ``pdcluster_worker.kv.rows``."""
    parts = PurePosixPath(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _mentioned(source: Source) -> set[str]:
    if source.path == "pyproject.toml":  # entry points
        return set(REFERENCE.findall(source.text))
    names = {name for _, name in imported(source)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(REFERENCE.findall(node.value))
    return names


def _counts_as_user(source: Source) -> bool:
    started = source.is_python and source.path.startswith("scripts/")
    return source.is_product or started or source.path == "pyproject.toml"


def dead_module(sources: Sequence[Source]) -> Iterator[Offence]:
    """Every module of the product is imported, or named in a string, by another one."""
    users: dict[str, set[str]] = {}
    for source in filter(_counts_as_user, sources):
        for name in _mentioned(source):
            users.setdefault(name, set()).add(source.path)
    for source in product(sources):
        others = users.get(module_name(source.path), set()) - {source.path}
        if PurePosixPath(source.path).stem not in STARTED_BY_NAME and not others:
            yield Offence(path=source.path, line=1, message="nothing imports it: delete it")


def stray_init(sources: Sequence[Source]) -> Iterator[Offence]:
    """No ``__init__.py`` in api/, operator/, worker/ or under tests/: it would shadow modules."""
    for source in sources:
        path = PurePosixPath(source.path)
        if path.name == "__init__.py" and (
            f"{path.parent}/" in PRODUCT or path.parts[0] == "tests"
        ):
            message = "makes a package that shadows the standard library: delete it"
            yield Offence(path=source.path, line=1, message=message)


def missing_init(sources: Sequence[Source]) -> Iterator[Offence]:
    """Every folder of a package has an ``__init__.py`` that says what lives there."""
    paths = {source.path for source in sources}
    folders = {str(PurePosixPath(source.path).parent) for source in product(sources)}
    for folder in sorted(folders):
        if f"{folder}/" not in PRODUCT and f"{folder}/__init__.py" not in paths:
            message = "no __init__.py: add one whose docstring says what lives here"
            yield Offence(path=folder, line=0, message=message)
