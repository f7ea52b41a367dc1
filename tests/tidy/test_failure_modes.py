"""Every failure mode that applies has a test of its number that says what it is about."""

import re
from dataclasses import fields

import pytest

from pdcluster_api.launch import LimitSpec
from scripts.generate_failure_modes import LABELS, ROOT, Case, by_number, cases, cases_of, document

# Of the known failure modes, those of full attention, one rank per worker and no prefix tree.
APPLY = (
    1, 2, 5, 8, 9, 10, 12, 17, 20, 21, 22, 23, 24, 25, 26, 31, 32, 34, 38, 39, 41, 42, 44, 45, 46,
    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 65, 66, 68, 69, 72, 73, 74, 75, 76, 77,
    81, 83, 85, 86, 87,
)  # fmt: skip

PLANTED = '''
async def test_e03_f07_e11_planted() -> None:
    """Trigger: it
    rains.
    Others: get wet.
    Here: a | roof.
    Bound: {bound}

    Trigger: another paragraph.
    """


def test_e03_again() -> None:
    """Nothing that is labelled."""


def test_f07_of_another_list() -> None:
    """Trigger: none."""
'''


@pytest.fixture(scope="module")
def rows() -> dict[int, list[Case]]:
    return by_number(cases(ROOT / "tests"))


@pytest.mark.parametrize("number", APPLY)
def test_a_failure_mode_has_a_test_and_every_label(
    rows: dict[int, list[Case]], number: int
) -> None:
    assert rows.get(number), f"no test is named test_e{number:02}_..."
    missing = set(LABELS) - set(rows[number][0].said)
    assert not missing, f"the docstring of {rows[number][0].name} lacks {missing}"


def test_a_row_is_described_once(rows: dict[int, list[Case]]) -> None:
    twice = {n: [c.name for c in tests if c.said] for n, tests in rows.items()}
    assert {n: names for n, names in twice.items() if len(names) > 1} == {}


def test_limits_are_named_as_they_are(rows: dict[int, list[Case]]) -> None:
    known = {field.name for field in fields(LimitSpec)}
    named = {n for tests in rows.values() for n in re.findall(r"\w+_\w+", str(tests[0].said))}
    assert named
    assert named <= known


def test_a_row_reads_as_its_docstring_says() -> None:
    found = by_number(cases_of(PLANTED.format(bound="one_limit_s or none."), "tests/x/test_y.py"))
    assert list(found) == [3, 11]
    text = document(found)
    first = "[`test_e03_f07_e11_planted`](../tests/x/test_y.py)"
    again = "[`test_e03_again`](../tests/x/test_y.py)"
    assert (
        f"| E3 | It rains | Get wet | A \\| roof | `one_limit_s` or none | {first}<br>{again} |\n"
        in text
    )
    assert text.endswith(
        f"| E11 | It rains | Get wet | A \\| roof | `one_limit_s` or none | {first} |\n"
    )


def test_a_row_that_nobody_describes_is_named() -> None:
    halved = PLANTED.replace("Bound: {bound}", "")
    with pytest.raises(ValueError, match=r"\['E3', 'E11'\]"):
        document(by_number(cases_of(halved, "tests/x/test_y.py")))
