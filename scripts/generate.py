"""Rewrite every generated file, or with --check say which are not what would be written today.

One row per generator. A generator is a module, started by name in the environment's interpreter:
alone it rewrites its files, with ``--check`` it writes nothing and exits 1 where they differ.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

GENERATORS = {
    "protobuf stubs": "scripts.generate_stubs",
    "resource definitions": "pdcluster_operator.spec.generate",
    "metric docs": "pdcluster_api.metrics",
    "HTTP docs": "pdcluster_worker.frontend.docs",
    "failure modes": "scripts.generate_failure_modes",
}


def run(module: str, *, check: bool) -> bool:
    """Run one generator; True when it succeeded."""
    command = [sys.executable, "-m", module, *(["--check"] if check else [])]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> None:
    """Run all generators, also after one failed, so that every difference shows at once."""
    parser = argparse.ArgumentParser(description="Rewrite or check the generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check: bool = parser.parse_args().check
    failed = [name for name, module in GENERATORS.items() if not run(module, check=check)]
    if failed:
        remedy = "; `make generate` rewrites them" if check else ""
        sys.exit(f"not as generated: {', '.join(failed)}{remedy}")


if __name__ == "__main__":
    main()
