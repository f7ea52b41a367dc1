"""The edits of `tests.mutants` fit the code: it is they that prove the tests."""

import shutil
from pathlib import Path

import pytest

from tests.mutants.__main__ import PACKAGE, apply
from tests.mutants.protections import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_an_edit_fits_exactly_once(mutant: Mutant, tmp_path: Path) -> None:
    (tmp_path / mutant.file).parent.mkdir(parents=True)
    shutil.copy(PACKAGE / mutant.file, tmp_path / mutant.file)
    apply(mutant, tmp_path)


def test_there_are_enough_and_none_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
