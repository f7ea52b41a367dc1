"""Where a rule does not hold, and why. A row that exempts nothing any more is an error.

``symbol`` is the qualified name of one function, or "*" for the whole file. The library rules have
their permitted files here too: one for nixl, two for kopf, one clock and one settings module on
each side. `test_repository` holds those counts.
"""

from dataclasses import dataclass

from tests.tidy.source import Offence


@dataclass(frozen=True)
class Exemption:
    """One permitted place."""

    rule: str
    path: str
    symbol: str
    reason: str

    def covers(self, rule: str, offence: Offence) -> bool:
        """Whether the offence is the permitted one."""
        same_place = (rule, offence.path) == (self.rule, self.path)
        return same_place and self.symbol in ("*", offence.symbol)


EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption(
        "reads-clock", "worker/pdcluster_worker/core/clock.py", "*", "the worker's clock module"
    ),
    Exemption(
        "imports-nixl", "worker/pdcluster_worker/transfer/nixl.py", "*", "the one file that may"
    ),
    Exemption("unassigned-work", "tests/tidy/test_rules.py", "*", "a planted offence"),
    Exemption("machine-path", "tests/tidy/test_rules.py", "*", "a planted offence"),
    Exemption("index-host", "tests/tidy/test_rules.py", "*", "a planted offence"),
)
