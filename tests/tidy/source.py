"""What the rules read: the repository's files as text, and the offences they report."""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("api/", "operator/", "worker/")
GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Offence:
    """One place that breaks a rule. ``symbol`` is the function around it, or "" for the file."""

    path: str
    line: int
    message: str
    symbol: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}"
        return (
            f"{where}: {self.symbol}: {self.message}" if self.symbol else f"{where}: {self.message}"
        )


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, and its text (undecodable bytes kept as surrogates)."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        """Written by people: generated stubs are checked by regenerating them."""
        return self.path.endswith(".py") and not self.path.endswith(GENERATED)

    @property
    def is_product(self) -> bool:
        """Python that we ship, as against tests, benchmarks and scripts."""
        return self.is_python and self.path.startswith(PRODUCT)

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed module."""
        return ast.parse(self.text, self.path)

    @cached_property
    def functions(self) -> tuple[tuple[str, Function], ...]:
        """Every function with its qualified name, nested ones too."""
        return tuple(_functions(self.tree, ""))

    def symbol_at(self, line: int) -> str:
        """Qualified name of the innermost function around a line, or ""."""
        around = [
            (function.lineno, name)
            for name, function in self.functions
            if function.lineno <= line <= (function.end_lineno or function.lineno)
        ]
        return max(around)[1] if around else ""

    def offence(self, node: ast.stmt | ast.expr | ast.excepthandler, message: str) -> Offence:
        """An offence at a node of this file."""
        symbol = self.symbol_at(node.lineno)
        return Offence(path=self.path, line=node.lineno, symbol=symbol, message=message)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(child, prefix)
            continue
        name = f"{prefix}{child.name}"
        if not isinstance(child, ast.ClassDef):
            yield name, child
        yield from _functions(child, f"{name}.")


def python(sources: Sequence[Source]) -> Iterator[Source]:
    """The Python files."""
    return (source for source in sources if source.is_python)


def product(sources: Sequence[Source]) -> Iterator[Source]:
    """The Python files that we ship."""
    return (source for source in sources if source.is_product)


def repository() -> tuple[Source, ...]:
    """Every file that is, or would be, committed."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file())
    return tuple(
        Source(path, (ROOT / path).read_text(encoding="utf-8", errors="surrogateescape"))
        for path in paths
    )
