"""What the text of any file must hold, and what it must not."""

import ast
import re
from collections.abc import Iterator, Sequence

from tests.tidy.source import ROOT, Offence, Source, python

FILE_BYTES_MAX = 512 * 1024
# The brackets keep a pattern from matching itself.
UNASSIGNED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b(?!\(#\d+\))")
HOMES = r"(?<![\w.*<])/(?:ro[o]t|ho[m]e/\w+|Use[r]s/\w+)/"
ONE_MACHINE = re.compile(rf"{HOMES}|{re.escape(str(ROOT))}(?!\w)")  # homes, and this checkout
INDEX_HOST = re.compile(
    r"//[\w.-]+(?:/[\w./-]*)?/simpl[e]\b|pythonhoste[d]\.org|downloa[d]\.pytorch"
)
KEPT = {
    "LICENSE": "Apache License",
    "CHANGELOG.md": "## [Unreleased]",
    "README.md": "make demo",
    "ARCHITECTURE.md": "",
    "CONTRIBUTING.md": "",
}


def no_docstring(sources: Sequence[Source]) -> Iterator[Offence]:
    """Every module and package opens with what it is for."""
    for source in python(sources):
        if not ast.get_docstring(source.tree):
            yield Offence(path=source.path, line=1, message="no docstring: say what lives here")


def _matches(
    sources: Sequence[Source], *, pattern: re.Pattern[str], message: str
) -> Iterator[Offence]:
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), start=1):
            if found := pattern.search(line):
                told = f"{found[0]!r}: {message}"
                yield Offence(path=source.path, line=number, message=told)


def unassigned_work(sources: Sequence[Source]) -> Iterator[Offence]:
    """Work left for later names its issue."""
    return _matches(sources, pattern=UNASSIGNED, message="name the issue: (#12)")


def machine_path(sources: Sequence[Source]) -> Iterator[Offence]:
    """No path that exists on one machine only."""
    return _matches(sources, pattern=ONE_MACHINE, message="a path of one machine")


def index_host(sources: Sequence[Source]) -> Iterator[Offence]:
    """No package index by name: pip's configuration decides."""
    return _matches(sources, pattern=INDEX_HOST, message="pip's configuration names the index")


def large_file(sources: Sequence[Source]) -> Iterator[Offence]:
    """No file is larger than 512 KiB."""
    for source in sources:
        size = len(source.text.encode(errors="surrogateescape"))
        if size > FILE_BYTES_MAX:
            message = f"{size} bytes, at most {FILE_BYTES_MAX}: fetch or generate it"
            yield Offence(path=source.path, line=1, message=message)


def missing_text(sources: Sequence[Source]) -> Iterator[Offence]:
    """The files every reader looks for are there and say what they must."""
    texts = {source.path: source.text for source in sources}
    for path, words in KEPT.items():
        if words not in texts.get(path, "") or path not in texts:
            yield Offence(path=path, line=1, message=f"must exist and hold {words!r}")
