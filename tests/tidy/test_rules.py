"""Every rule catches a planted offence and lets the right way pass."""

from dataclasses import dataclass, field

import pytest

from tests.tidy.registry import RULES
from tests.tidy.source import ROOT, Source

FILE = "worker/pdcluster_worker/core/thing.py"
LONG_BODY = "    pass\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Text that breaks a rule, text that does not, and where both are put."""

    bad: str
    good: str
    path: str = FILE
    good_path: str = ""
    beside: dict[str, str] = field(default_factory=dict)


def function(lines: int) -> str:
    return "def f() -> None:\n" + LONG_BODY * (lines - 1)


CASES: dict[str, Case] = {
    "long-file": Case(bad="x = 1\n" * 401, good="x = 1\n" * 400),
    "long-function": Case(bad=function(71), good=function(70)),
    "many-parameters": Case(
        bad="class A:\n    def f(self, a, *, b, c, d, e, f, g): ...\n",
        good="class A:\n    def f(self, a, *, b, c, d, e, f): ...\n",
    ),
    "many-positional": Case(bad="async def f(a, b, c): ...\n", good="def f(a, b, *c, d): ...\n"),
    "median-file": Case(bad="x = 1\n" * 121, good="x = 1\n" * 120),
    "median-function": Case(bad=function(11), good=function(10)),
    "has-attribute": Case(
        bad="hasattr(a, 'b')\ngetattr(a, 'b', None)\n", good="getattr(a, name)\na.b\n"
    ),
    "wide-except": Case(
        bad="def f():\n    try:\n        g()\n    except (OSError, Exception):\n        pass\n",
        good="try:\n    g()\nexcept OSError:\n    pass\nexcept BaseException:\n    raise\n",
    ),
    "reads-clock": Case(
        bad="time.sleep(1)\nfrom time import monotonic\ndatetime.datetime.now()\n",
        good="clock.sleep(1)\nimport time\ntime.strftime('%Y')\n",
    ),
    "reads-environment": Case(
        bad="os.environ['A']\nos.getenv('A')\nfrom os import environ\n",
        good="os.getpid()\nfrom os import path\n",
    ),
    "unsafe-code": Case(
        bad="import pickle\nfrom marshal import loads\neval('1')\nexec('1')\n",
        good="import json\nmodel.eval()\n",
    ),
    "imports-nixl": Case(
        bad="def f():\n    from nixl_cu12 import _api\n", good="from pdcluster_worker import nixl\n"
    ),
    "imports-kopf": Case(bad="import kopf.testing\n", good="import kopfschmerz\n"),
    "foreign-to-api": Case(
        bad="import msgspec\n",
        good="import json\nimport grpc\nfrom google.protobuf import message\n",
        path="api/pdcluster_api/thing.py",
    ),
    "dead-module": Case(
        bad="import pdcluster_worker.core.thing\n",
        good="",
        beside={
            "worker/pdcluster_worker/core/other.py": "from pdcluster_worker.core import another\n",
            "worker/pdcluster_worker/core/another.py": "'pdcluster_worker.core.other:Backend'\n",
        },
        good_path="worker/pdcluster_worker/__main__.py",
    ),
    "stray-init": Case(
        bad="", good="", path="operator/__init__.py", good_path="operator/pdcluster/__init__.py"
    ),
    "missing-init": Case(bad="", good="", good_path="worker/pdcluster_worker/__init__.py"),
    "no-docstring": Case(bad="x = 1\n", good='"""What it is."""\n'),
    "unassigned-work": Case(bad="# TODO later\n", good="# TODO(#12): later\n"),
    "machine-path": Case(
        bad="/root/x\n/home/me/x\n/Users/me/x\n" + str(ROOT), good="./home/x $HOME/x ~/x /var/x\n"
    ),
    "index-host": Case(
        bad="pip install -i https://mirror.example/pypi/simple x\n", good="see example.org\n"
    ),
    "large-file": Case(bad="x" * 524289, good="x" * 524288, path="docs/x.md"),
    "missing-text": Case(
        bad="## 1.0\n",
        good="## [Unreleased]\n",
        path="CHANGELOG.md",
        beside={
            "LICENSE": "Apache License",
            "README.md": "make demo",
            "ARCHITECTURE.md": "",
            "CONTRIBUTING.md": "",
        },
    ),
}


def offending_lines(rule: str, text: str, *, path: str, beside: dict[str, str]) -> set[int]:
    sources = [Source(path, text), *(Source(*other) for other in beside.items())]
    return {offence.line for offence in RULES[rule](sources)}


def test_every_rule_has_a_planted_offence() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_rule_catches_the_offence(rule: str) -> None:
    case = CASES[rule]
    assert offending_lines(rule, case.bad, path=case.path, beside=case.beside)


@pytest.mark.parametrize("rule", RULES)
def test_rule_lets_the_right_way_pass(rule: str) -> None:
    case = CASES[rule]
    path = case.good_path or case.path
    assert offending_lines(rule, case.good, path=path, beside=case.beside) == set()


@pytest.mark.parametrize(
    "rule", ["has-attribute", "machine-path", "reads-clock", "reads-environment", "unsafe-code"]
)
def test_rule_catches_each_line(rule: str) -> None:
    case = CASES[rule]
    lines = offending_lines(rule, case.bad, path=case.path, beside={})
    assert lines == set(range(1, len(case.bad.splitlines()) + 1))


def test_rules_for_the_product_leave_tests_alone() -> None:
    bad = CASES["has-attribute"].bad
    assert not offending_lines("has-attribute", bad, path="tests/unit/test_x.py", beside={})


def test_an_offence_names_the_function_around_it() -> None:
    source = Source(FILE, "class A:\n    def f(self):\n        hasattr(self, 'x')\n")
    (offence,) = RULES["has-attribute"]([source])
    assert offence.symbol == "A.f"
    assert str(offence).startswith(f"{FILE}:3: A.f: ")
