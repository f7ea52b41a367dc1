"""Make the virtual environment and install the project into it; do nothing when nothing changed.

    no environment, or a broken one  -> python -m venv
    stamp equals today's digest      -> done, in milliseconds
    otherwise                        -> uv pip install -e .[...], told what pip's configuration says
    uv not installable, or it failed -> plain pip, slower, same result
    installed                        -> write the stamp

The digest covers pyproject.toml and the folder of the checkout, which an editable install points
to. Runs on the bare interpreter: standard library only. Called by `make setup`.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ".[operator,worker,dev]"
STAMP = ".pdcluster-installed"

# pip option -> uv variables that say the same. pip separates several values by blanks.
SAME_IN_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
SECTIONS = (":env:", "install", "global")  # what pip lets win comes first
LINE = re.compile(r"^(?P<section>:env:|\w+)\.(?P<option>[\w-]+)='(?P<value>.*)'$")


def pip_options(listing: str) -> dict[str, str]:
    """Options in force, from the output of ``pip config list``."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for match in map(LINE.match, listing.splitlines()):
        if match and match["section"] in found:
            value = match["value"].replace("\\n", " ")
            found[match["section"]][match["option"]] = " ".join(value.split())
    merged: dict[str, str] = {}
    for section in reversed(SECTIONS):
        merged |= found[section]
    return merged


def uv_environment(listing: str, *, present: Mapping[str, str]) -> dict[str, str]:
    """Variables that make uv install from where pip would; what the user set for uv stays."""
    wanted: dict[str, str] = {}
    for option, value in pip_options(listing).items():
        name, separator = SAME_IN_UV.get(option, ("", ""))
        if name and value:
            wanted[name] = separator.join(value.split())
    if "UV_INDEX" in wanted:  # pip takes the best version of all indexes, uv the first index's
        wanted["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in wanted.items() if name not in present}


def digest() -> str:
    """Of everything that makes a new installation necessary."""
    content = (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(b"\0".join((content, os.fsencode(ROOT)))).hexdigest()


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> bool:
    """Run a command in the checkout, its output shown; True when it succeeded."""
    full = {**os.environ, **(env or {})}
    return subprocess.run(command, cwd=ROOT, env=full, check=False).returncode == 0


def works(*command: str | Path) -> bool:
    """Whether a command can be run and succeeds, its output kept quiet."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def make_environment(venv: Path) -> None:
    """A fresh environment, in place of a broken one too; never over somebody's other files."""
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        sys.exit(f"{venv} holds other files; name another folder: make VENV=dir")
    print(f"making {venv}", flush=True)
    if not run(sys.executable, "-m", "venv", "--clear", venv):
        sys.exit(
            f"{sys.executable} cannot make a virtual environment. On Debian and Ubuntu install the "
            "package python3-venv, or name another interpreter: make PYTHON=/path/to/python3.12"
        )


def install_with_uv(python: Path) -> bool:
    """The fast way: about twenty seconds where pip needs minutes."""
    if not run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"):
        return False
    listing = subprocess.run(
        (python, "-m", "pip", "config", "list"), capture_output=True, text=True, check=False
    ).stdout
    env = uv_environment(listing, present=os.environ)
    return run(python, "-m", "uv", "pip", "install", "--python", python, "-e", TARGET, env=env)


def install(python: Path) -> None:
    """The project with all extras, editable."""
    print("installing pdcluster and what it needs (about 6 GB the first time)", flush=True)
    if install_with_uv(python):
        return
    print("uv did not manage; trying pip, which takes some minutes", flush=True)
    if not run(python, "-m", "pip", "install", "-e", TARGET):
        sys.exit("installation failed; the reason is in pip's last lines above")


def main() -> None:
    """Bring the environment named on the command line up to date."""
    parser = argparse.ArgumentParser(description="Make the virtual environment of this checkout.")
    parser.add_argument("venv", type=Path)
    venv: Path = parser.parse_args().venv.absolute()
    stamp, python = venv / STAMP, venv / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == digest() and python.exists():
        return
    stamp.unlink(missing_ok=True)
    if not works(python, "--version"):
        make_environment(venv)
    if not works(python, "-m", "pip", "--version"):
        run(python, "-m", "ensurepip")
    install(python)
    stamp.write_text(digest())


if __name__ == "__main__":
    main()
