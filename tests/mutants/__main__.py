"""``python -m tests.mutants``: remove one protection at a time and see whether anybody notices.

First the simulator, for as many days as a normal run has; then the tests of the pipeline. A mutant
that survives both is a fault of the tests. Exit code 1 when one does.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.protections import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "worker/pdcluster_worker"
DAYS = 400
LIMIT_S = 300.0
SIMULATE = """
import sys
from pdcluster_worker.sim.run import run
from pdcluster_worker.sim.schedule import make_schedule
for seed in range(int(sys.argv[1])):
    if problem := run(make_schedule(seed)).problem:
        print(f"day {seed}: {problem[:120]}")
        sys.exit(1)
"""
TESTS = ("tests/unit/pipeline", "tests/unit/wire", "tests/unit/kv", "tests/sim/test_protocol.py",
         "tests/sim/test_handoff.py", "tests/sim/test_tables.py")  # fmt: skip


def main() -> int:
    """Print a line for each mutant: who killed it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    chosen = [m for m in MUTANTS if parser.parse_args().only in m.name]
    survivors = [mutant.name for mutant in chosen if not _killed(mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    for name in survivors:
        print(f"SURVIVES: {name}")
    return 1 if survivors else 0


def _killed(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / PACKAGE.name
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        apply(mutant, package)
        env = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        words = _run(["-c", SIMULATE, str(DAYS)], env)
        if words is not None:
            print(f"{mutant.name}: simulator, {words or 'it does not end'}", flush=True)
            return True
        words = _run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS], env)
        if words is not None:
            print(f"{mutant.name}: {words or 'tests do not end'}", flush=True)
        return words is not None


def apply(mutant: Mutant, package: Path) -> None:
    """Edit a copy of the package. ValueError when the edit does not fit exactly once."""
    path = package / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {text.count(mutant.old)} places in {mutant.file}")
    path.write_text(text.replace(mutant.old, mutant.new))


def _run(words: list[str], env: dict[str, str]) -> str | None:
    """The last line of what failed; None when nothing did."""
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode == 0:
        return None
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    named = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (named or lines)[-1][:160]


if __name__ == "__main__":
    sys.exit(main())
