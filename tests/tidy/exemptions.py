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


WORKER = "worker/pdcluster_worker"
OPERATOR = "operator/pdcluster_operator"

EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption("reads-clock", f"{WORKER}/core/clock.py", "*", "the worker's clock module"),
    Exemption("reads-clock", f"{OPERATOR}/clock.py", "*", "the operator's clock module"),
    Exemption("reads-environment", f"{WORKER}/core/settings.py", "*", "the worker's settings"),
    Exemption("reads-environment", f"{OPERATOR}/settings.py", "*", "the operator's settings"),
    Exemption("imports-nixl", f"{WORKER}/transfer/nixl.py", "*", "the one file that may"),
    Exemption(
        "many-parameters",
        "api/pdcluster_api/schema.py",
        "field",
        "each keyword is one bound of a setting; a dataclass would be spelt out in every row",
    ),
    Exemption(
        "wide-except",
        f"{WORKER}/engine/runner.py",
        "PassRunner._one",
        "the outermost loop of the engine's thread: one bad batch must not end it",
    ),
    Exemption(
        "wide-except",
        f"{WORKER}/roles/loop.py",
        "Loop._guarded_turn",
        "the role's loop: a fault of ours costs what it touched, not every request",
    ),
    Exemption(
        "wide-except",
        f"{WORKER}/sim/run.py",
        "run",
        "the judge of the simulated code: whatever it raises is what is looked for",
    ),
    Exemption("unassigned-work", "tests/tidy/test_rules.py", "*", "a planted offence"),
    Exemption("machine-path", "tests/tidy/test_rules.py", "*", "a planted offence"),
    Exemption("index-host", "tests/tidy/test_rules.py", "*", "a planted offence"),
)
