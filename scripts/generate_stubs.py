"""Protobuf and gRPC stubs beside each ``.proto`` file of api/; with --check compare only."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "api"


def compile_protos(target: Path) -> None:
    """Write the stubs of all protos into ``target``, laid out as in api/."""
    protos = [str(path.relative_to(API)) for path in sorted(API.rglob("*.proto"))]
    if not protos:
        return
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{API}", *outputs, *protos]
    subprocess.run(command, cwd=API, check=True)


def stubs(folder: Path) -> dict[Path, bytes]:
    """Generated files under a folder, by their path in it."""
    found = (path for pattern in ("*_pb2*.py", "*_pb2*.pyi") for path in folder.rglob(pattern))
    return {path.relative_to(folder): path.read_bytes() for path in found}


def main() -> None:
    """Bring the stubs up to date, or say which are not."""
    parser = argparse.ArgumentParser(description="Generate protobuf and gRPC stubs.")
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        compile_protos(Path(folder))
        wanted, present = stubs(Path(folder)), stubs(API)
    differing = sorted(path for path in wanted | present if wanted.get(path) != present.get(path))
    if check:
        sys.exit("\n".join(f"api/{path} is not what protoc writes" for path in differing) or 0)
    for path in differing:
        if path in wanted:
            (API / path).write_bytes(wanted[path])
        else:
            (API / path).unlink()


if __name__ == "__main__":
    main()
