"""How long a file and a function may be, and how many parameters a function takes."""

import ast
from collections.abc import Iterator, Sequence
from statistics import median

from tests.tidy.source import Function, Offence, Source, product, python

FILE_LINES_MAX = 400
FILE_LINES_MEDIAN_MAX = 120
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_MEDIAN_MAX = 10
PARAMETERS_MAX = 6
POSITIONAL_MAX = 2
# A private function is called in sight of its definition, with names that say the same.
PRIVATE_POSITIONAL_MAX = 4


def file_lines(source: Source) -> int:
    """Lines of a file."""
    return len(source.text.splitlines())


def function_lines(function: Function) -> int:
    """Lines of a function from its ``def`` to its end, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def long_file(sources: Sequence[Source]) -> Iterator[Offence]:
    """No Python file is longer than 400 lines."""
    for source in python(sources):
        if (lines := file_lines(source)) > FILE_LINES_MAX:
            message = f"{lines} lines, at most {FILE_LINES_MAX}: move one idea to its own module"
            yield Offence(path=source.path, line=1, message=message)


def long_function(sources: Sequence[Source]) -> Iterator[Offence]:
    """No function is longer than 70 lines."""
    for source in python(sources):
        for _, function in source.functions:
            if (lines := function_lines(function)) > FUNCTION_LINES_MAX:
                message = f"{lines} lines, at most {FUNCTION_LINES_MAX}: name its steps"
                yield source.offence(function, message)


def _without_self(function: Function) -> list[str]:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def many_parameters(sources: Sequence[Source]) -> Iterator[Offence]:
    """No function of the product takes more than six parameters, ``self`` not counted."""
    for source in product(sources):
        for _, function in source.functions:
            count = len(_without_self(function)) + len(function.args.kwonlyargs)
            if count > PARAMETERS_MAX:
                message = f"{count} parameters, at most {PARAMETERS_MAX}: make a frozen dataclass"
                yield source.offence(function, message)


def many_positional(sources: Sequence[Source]) -> Iterator[Offence]:
    """A public function takes at most two positional parameters, a private one at most four."""
    for source in product(sources):
        for _, function in source.functions:
            count = len(_without_self(function))
            most = PRIVATE_POSITIONAL_MAX if function.name.startswith("_") else POSITIONAL_MAX
            if count > most:
                message = f"{count} positional parameters, at most {most}: put a `*` in"
                yield source.offence(function, message)


def median_file(sources: Sequence[Source]) -> Iterator[Offence]:
    """Half of the product's files have 120 lines or fewer."""
    lines = [file_lines(source) for source in product(sources) if source.tree.body[1:]]
    if lines and (middle := median(lines)) > FILE_LINES_MEDIAN_MAX:
        message = f"median file has {middle:g} lines, at most {FILE_LINES_MEDIAN_MAX}"
        yield Offence(path=".", line=0, message=message)


def _is_stub(function: Function) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def median_function(sources: Sequence[Source]) -> Iterator[Offence]:
    """Half of the product's functions have ten lines or fewer; Protocol stubs do not count."""
    lines = [
        function_lines(function)
        for source in product(sources)
        for _, function in source.functions
        if not _is_stub(function)
    ]
    if lines and (middle := median(lines)) > FUNCTION_LINES_MEDIAN_MAX:
        message = f"median function has {middle:g} lines, at most {FUNCTION_LINES_MEDIAN_MAX}"
        yield Offence(path=".", line=0, message=message)
