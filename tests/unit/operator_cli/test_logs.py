"""`pdcluster logs`, as far as it needs no running cluster."""

import json
from pathlib import Path

import pytest

from pdcluster_operator import cli


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PDCLUSTER_STATE_DIR", str(tmp_path))
    folder = tmp_path / "c/pods/c-decode-0"
    folder.mkdir(parents=True)
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["pdcluster", "logs", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_lines_come_as_one_object_each(
    pod: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (pod / "worker.log").write_text('{"event": "a\u2028b"}\nplain\n')
    assert run(monkeypatch, "decode-0", "--cluster", "c", "-o", "json") == 0
    where = {"pod": "c-decode-0", "container": "worker"}
    assert [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]] == [
        {**where, "record": {"event": "a\u2028b"}},
        {**where, "text": "plain"},
    ]
    assert run(monkeypatch, "--cluster", "c", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"pod": "c-decode-0"}


def test_logs_of_an_ended_cluster_can_be_read(
    pod: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (pod / "worker.log").write_text("one\ntwo\nthree")
    assert run(monkeypatch, "c-decode-0", "--cluster", "c", "--tail", "2") == 0
    assert capsys.readouterr().out == "two\nthree\n"


def test_what_is_not_there_is_said(
    pod: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "x", "--cluster", "c") == 1
    assert capsys.readouterr().err == "error: no pod x in c; there are c-decode-0\n"
    assert run(monkeypatch, "decode-0", "--cluster", "c") == 1
    assert "no log of container worker in c-decode-0" in capsys.readouterr().err
    pod.rmdir()
    assert run(monkeypatch, "x", "--cluster", "c") == 1
    assert "none has written anything yet" in capsys.readouterr().err
