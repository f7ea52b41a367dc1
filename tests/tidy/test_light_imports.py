"""What importing a package drags in, seen in a fresh interpreter.

`.importlinter` reads import statements; this sees what a package's ``__init__`` loads as well.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.rules_imports import module_name
from tests.tidy.source import ROOT

HEAVY = {"torch", "transformers", "nixl_cu12"}
OUTER = HEAVY | {"zmq", "grpc", "uvicorn", "starlette", "kopf", "kubernetes"}

# folder of a package -> what loading all its modules must not load
LIGHT = {
    "worker/pdcluster_worker/core": OUTER,
    "worker/pdcluster_worker/wire": OUTER,
    "worker/pdcluster_worker/pipeline": OUTER,
    "worker/pdcluster_worker/sidecar": HEAVY,
    "api/pdcluster_api": OUTER - {"grpc"},
    "operator/pdcluster_operator/spec": OUTER,
    "operator/pdcluster_operator/plan": OUTER,
    "operator/pdcluster_operator/render": OUTER,
}

PROGRAM = """
import importlib, sys
modules, unwanted = sys.argv[1].split(","), set(sys.argv[2].split(","))
for name in modules:
    importlib.import_module(name)
print(",".join(sorted(unwanted & sys.modules.keys())))
"""


def modules(folder: str) -> list[str]:
    """Importable modules of a package, programs left out."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    names = (module_name(str(path.relative_to(ROOT))) for path in paths)
    return [name for name in names if not name.endswith("__main__")]


@pytest.mark.parametrize("folder", LIGHT)
def test_package_stays_light(folder: str) -> None:
    assert Path(ROOT / folder).is_dir()
    command = [sys.executable, "-c", PROGRAM, ",".join(modules(folder)), ",".join(LIGHT[folder])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
