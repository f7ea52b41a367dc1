"""Every rule holds in this repository, save where a row of the exemption table says why not."""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.tidy.exemptions import EXEMPTIONS, Exemption
from tests.tidy.registry import RULES
from tests.tidy.source import Offence, Source, repository

PERMITTED_FILES_MAX = {
    ("imports-nixl", "worker"): 1,
    ("imports-kopf", "operator"): 2,
    ("reads-clock", "worker"): 1,
    ("reads-clock", "operator"): 1,
    ("reads-environment", "worker"): 1,
    ("reads-environment", "operator"): 1,
}


@pytest.fixture(scope="module")
def sources() -> Sequence[Source]:
    return repository()


def covered(rule: str, offence: Offence) -> bool:
    return any(row.covers(rule, offence) for row in EXEMPTIONS)


@pytest.mark.parametrize("rule", RULES)
def test_rule_holds(rule: str, sources: Sequence[Source]) -> None:
    offences = [str(found) for found in RULES[rule](sources) if not covered(rule, found)]
    if offences:
        pytest.fail(f"{RULES[rule].__doc__}\n" + "\n".join(offences), pytrace=False)


@pytest.mark.parametrize("row", EXEMPTIONS, ids=lambda row: f"{row.rule}:{row.path}:{row.symbol}")
def test_exemption_is_needed(row: Exemption, sources: Sequence[Source]) -> None:
    assert row.reason
    assert any(row.covers(row.rule, found) for found in RULES[row.rule](sources))


def test_libraries_clock_and_environment_stay_in_their_few_files() -> None:
    rules = {rule for rule, _ in PERMITTED_FILES_MAX}
    files = {(row.rule, row.path) for row in EXEMPTIONS if row.rule in rules}
    counts = Counter((rule, path.partition("/")[0]) for rule, path in files)
    assert {key: n for key, n in counts.items() if n > PERMITTED_FILES_MAX.get(key, 0)} == {}
