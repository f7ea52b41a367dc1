"""The cache directory: entries appear whole, once, whoever makes them.

An entry is made under a temporary name and renamed into place while an exclusive file lock is held,
so two processes that want the same model at once make it once, and a killed process leaves only a
temporary that the next one removes.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdcluster_worker.models.progress import Progress

READ_BYTES = 1 << 20


def entry(cache_dir: Path, name: str, *, make: Callable[[Path], None]) -> Path:
    """The cached path ``name``; ``make(temporary)`` creates it when absent.

    ``make`` writes a file or folder at the path it is given. Its exception passes through and
    leaves no entry.
    """
    target = cache_dir / name
    if target.exists():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    with exclusive(cache_dir / f"{name}.lock"):
        if not target.exists():
            temporary = cache_dir / f".{name}.partial"
            _remove(temporary)  # what a killed process left; we hold the lock
            make(temporary)
            os.replace(temporary, target)
    return target


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold ``lock`` against other processes; waits for its holder."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def file_sha256(path: Path, progress: Progress) -> str:
    """Hex digest of the file's content."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as handle:
        while block := handle.read(READ_BYTES):
            digest.update(block)
            done += len(block)
            progress(f"reading {path.name}", done, total)
    return digest.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
