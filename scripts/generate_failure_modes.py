"""``docs/failure-modes.md`` from the docstrings of the tests; ``--check`` only compares.

A test named ``test_e20_...`` or ``test_e08_e09_...`` belongs to rows of the list of failure modes.
One test of each row says in its docstring, on lines that begin with `LABELS`, what the row is
about; a line without a label goes on with the one before.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
PATH: Final = ROOT / "docs/failure-modes.md"
LABELS: Final = ("Trigger", "Others", "Here", "Bound")

_NAME: Final = re.compile(r"test((?:_[ef]\d+)+)_")
_LINE: Final = re.compile(rf"({'|'.join(LABELS)}): (.+)")
_INTRO: Final = """\
# Failure modes

Generated from the docstrings of the tests; `make generate` rewrites it.

What is known to go wrong where prefill and decode are apart, as others have met it and reported it
in public, and what happens here. Each row has a test that fails when its protection is removed.
Names such as `queue_timeout_s` are limits of a worker; a manifest has them under `spec.limits`, as
`queueTimeoutS`. Missing numbers are about what this product does not have: several ranks in
a worker, a prefix tree, attention that forgets, speculation.

"""


@dataclass(frozen=True, slots=True)
class Case:
    """One test, and what its docstring says under each label."""

    path: str  # from the root of the repository
    name: str
    numbers: tuple[int, ...]
    said: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """Every label is there."""
        return set(self.said) == set(LABELS)

    @property
    def link(self) -> str:
        """For the table."""
        return f"[`{self.name}`](../{self.path})"


def cases(folder: Path) -> Iterator[Case]:
    """Of all test files under a folder of the repository, in the order of their paths."""
    for path in sorted(folder.rglob("test_*.py")):
        yield from cases_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


def cases_of(text: str, path: str) -> Iterator[Case]:
    """Of one file."""
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        found = _NAME.match(node.name)
        numbers = tuple(int(n) for n in re.findall(r"e(\d+)", found[1])) if found else ()
        if numbers:
            yield Case(path, node.name, numbers, _said(ast.get_docstring(node) or ""))


def _said(docstring: str) -> dict[str, str]:
    said: dict[str, str] = {}
    label = ""
    for line in docstring.partition("\n\n")[0].splitlines():
        if (found := _LINE.match(line)) is not None:
            label = found[1]
            said[label] = found[2]
        elif label:
            said[label] += f" {line.strip()}"
    return said


def by_number(found: Iterator[Case]) -> dict[int, list[Case]]:
    """The tests of each row; the one that describes it comes first."""
    rows: defaultdict[int, list[Case]] = defaultdict(list)
    for case in found:
        for number in case.numbers:
            rows[number].append(case)
    return {n: sorted(rows[n], key=lambda case: not case.whole) for n in sorted(rows)}


def document(rows: Mapping[int, Sequence[Case]]) -> str:
    """The page. ValueError names the rows that no test describes."""
    mute = [f"E{number}" for number, tests in rows.items() if not tests[0].whole]
    if mute:
        raise ValueError(f"no test has all of {', '.join(LABELS)} in its docstring: {mute}")
    head = ("", "Trigger", "What others did", "What we do", "Bound", "Tests")
    lines = [head, ("---",) * len(head), *(_row(n, tests) for n, tests in rows.items())]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return _INTRO + "".join(f"| {line} |\n" for line in cells)


def _row(number: int, tests: Sequence[Case]) -> tuple[str, ...]:
    said = [_sentence(tests[0].said[label]) for label in LABELS]
    return f"E{number}", *said, "<br>".join(case.link for case in tests)


def _sentence(text: str) -> str:
    text = re.sub(r"[a-z]+(?:_[a-z]+)+", r"`\g<0>`", text.rstrip("."))
    return text[0].upper() + text[1:]


def main() -> None:
    """Rewrite the page, or say that it differs."""
    parser = argparse.ArgumentParser(description="Write the table of failure modes.")
    parser.add_argument("--check", action="store_true", help="write nothing, report a difference")
    check: bool = parser.parse_args().check
    try:
        text = document(by_number(cases(ROOT / "tests")))
    except ValueError as error:
        sys.exit(str(error))
    if not check:
        PATH.write_text(text, encoding="utf-8")
    elif not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
        sys.exit(f"{PATH.relative_to(ROOT)} is not what the tests say")


if __name__ == "__main__":
    main()
