"""A container's log file, rotated by size."""

from io import BufferedWriter
from pathlib import Path
from typing import IO


class RotatingLog:
    """Appends to `path`; a full file becomes `path.1`, that one `path.2`, and so on."""

    def __init__(self, path: Path, *, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BufferedWriter | IO[bytes] = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        """Append; one write is never split over two files."""
        if self._size and self._size + len(data) > self._bytes_max:
            self._rotate()
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._files_max - 1, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        if self._files_max == 1:
            self._path.unlink(missing_ok=True)
        self._file = self._path.open("ab", buffering=0)
        self._size = 0

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
