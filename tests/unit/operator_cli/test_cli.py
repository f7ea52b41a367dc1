"""The command line, as far as it needs no running cluster."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdcluster_operator import cli
from pdcluster_operator.cli.ask import Answer, answer_table
from pdcluster_operator.cli.tail import follow, last_log_line, tail
from pdcluster_operator.cli.view import LineView, render_snapshot

REPOSITORY = Path(__file__).parents[3]


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["pdcluster", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_a_bad_manifest_says_everything_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: PDCluster\nmetadata: {name: c}\nspec: {prefill: {replicas: -1}}\n")
    assert run(monkeypatch, "up", str(bad)) == 2
    said = capsys.readouterr().err
    assert "spec.prefill.replicas: -1 is not allowed: must be >= 0" in said
    assert "spec.model: missing" in said
    assert "apiVersion" in said
    assert run(monkeypatch, "up", str(tmp_path / "absent.yaml")) == 2


def test_nothing_running_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PDCLUSTER_STATE_DIR", str(tmp_path))
    for command in (["status"], ["down"], ["logs"], ["generate", "x"], ["status", "c"]):
        assert run(monkeypatch, *command) == 1
        assert capsys.readouterr().err.startswith("error: ")


def test_errors_bear_no_class_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PDCLUSTER_STATE_DIR", str(tmp_path))
    assert run(monkeypatch, "status", "c[red]") == 1
    assert capsys.readouterr().err == "error: c[red] does not run here\n"
    assert run(monkeypatch, "render", str(tmp_path)) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: cannot be read: Is a directory\n"
    (tmp_path / "empty").touch()
    assert run(monkeypatch, "render", str(tmp_path / "empty")) == 2
    assert "empty: must hold exactly one PDCluster" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_and_a_bad_setting_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PDCLUSTER_STATE_DIR", str(tmp_path / "file"))
    for flags in ([], ["-d"]):
        assert run(monkeypatch, "up", *flags, str(REPOSITORY / "examples/tiny.yaml")) == 1
        assert capsys.readouterr().err == f"error: {tmp_path}/file/tiny: Not a directory\n"
    monkeypatch.setenv("PDCLUSTER_LOCAL_RANGE", "banana")
    assert run(monkeypatch, "status") == 2
    assert capsys.readouterr().err.startswith("error: PDCLUSTER_LOCAL_RANGE: ")


def test_a_ctrl_c_while_it_still_loads_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdcluster_operator.cli.app.run", interrupted)
    assert run(monkeypatch, "status") == 130


def test_render_prints_the_pods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(REPOSITORY / "examples/tiny.yaml")
    assert run(monkeypatch, "render", path, "-o", "json") == 0
    names = [pod["metadata"]["name"] for pod in json.loads(capsys.readouterr().out)]
    assert names == [
        "tiny-prefill-0",
        "tiny-prefill-1",
        "tiny-decode-0",
        "tiny-decode-1",
        "tiny-router-0",
    ]


def test_version_names_the_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "version", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["smg"] == "1.13.0"


def snapshot(**changes: Any) -> dict[str, Any]:
    pod = {
        "name": "c-decode-0",
        "role": "decode",
        "ip": "127.0.0.9",
        "phase": "Running",
        "ready": True,
        "restarts": 0,
        "message": "",
        "lastEnd": "",
        "loading": False,
    }
    return {
        "name": "c",
        "model": "m",
        "phase": "serving",
        "reason": "",
        "endpoint": "http://127.0.0.8:8080",
        "pods": [pod],
        "load": {
            "stages": {"decode": {"running": 2, "waiting": 0}},
            "requestsPerSecond": 1.5,
            "handoffGBps": 2.25,
            "handoffBytes": 3_000_000,
        },
        "logs": "/nowhere",
        **changes,
    }


def test_the_view_shows_pods_queues_and_rates() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(render_snapshot(snapshot()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("c-decode-0", "running 2", "1.5 requests/s", "2.25 GB/s", "8080/v1"):
        assert part in text


def shown(width: int, **changes: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_snapshot(snapshot(**changes)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_long_reason_leaves_the_table_in_shape_and_ends_with_an_ellipsis() -> None:
    pod = snapshot()["pods"][0]
    reason = "no config.json in " + "folder/" * 100 + "\nsecond line"
    bad = {**pod, "name": "c-prefill-0", "ready": False, "restarts": 3, "message": reason}
    lines = shown(60, pods=[pod, bad], reason=reason, phase="degraded")
    assert all(len(line) <= 60 for line in lines)
    table = [line.split() for line in lines[1:4]]
    assert table[1:] == [
        ["c-decode-0", "127.0.0.9", "ready", "0"],
        ["c-prefill-0", "127.0.0.9", "not", "ready", "3"],
    ]
    below = "\n".join(lines[4:])
    assert below.startswith("c-prefill-0: no config.json in")
    assert below.count("…") == 2
    assert len(lines) < 25


def test_what_is_awaited_stands_in_its_own_words_and_the_router_does_not_repeat_it() -> None:
    pod = snapshot()["pods"][0]
    said = "registrar: /ready answered 503 no worker is ready yet"
    router = {**pod, "name": "c-router-0", "role": "router", "ready": False, "message": said}
    why = "waiting for the first pair: prefill 0/1 ready, decode 1/1 ready"
    lines = shown(100, pods=[pod, router], reason=why, phase="starting")
    assert lines[-1] == why
    assert not any("registrar" in line for line in lines)


def test_progress_is_shown_for_the_first_start_only(tmp_path: Path) -> None:
    (tmp_path / "c-decode-0").mkdir()
    (tmp_path / "c-decode-0/worker.log").write_text('{"level": "info", "event": "chatter"}\n')
    pod = {**snapshot()["pods"][0], "ready": False, "message": "worker: killed by SIGKILL"}
    first = shown(100, pods=[{**pod, "loading": True}], logs=str(tmp_path))
    assert "c-decode-0: chatter" in first
    assert "c-decode-0: worker: killed by SIGKILL" in shown(100, pods=[pod], logs=str(tmp_path))


def test_lines_say_why_a_pod_is_not_ready() -> None:
    console = Console(file=io.StringIO(), width=200)
    pod = {**snapshot()["pods"][0], "ready": False, "restarts": 1, "message": "worker: exit code 1"}
    with LineView(console) as view:
        view.show(snapshot(pods=[pod]))
    assert isinstance(console.file, io.StringIO)
    first = console.file.getvalue().splitlines()[0]
    assert first == "c-decode-0 Running, not ready, 1 restarts: worker: exit code 1"


def test_lines_say_changes_only() -> None:
    console = Console(file=io.StringIO(), width=200)
    with LineView(console) as view:
        view.show(snapshot())
        view.show(snapshot())
        view.show(snapshot(phase="degraded"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "c-decode-0 Running, ready",
        "c is serving at http://127.0.0.8:8080/v1",
        "c is degraded",
    ]


def test_the_table_of_an_answer() -> None:
    handoff = {
        "pages": 3,
        "bytes": 2_000_000,
        "chunks": 1,
        "descriptors": 2,
        "seconds": 0.001,
        "total_seconds": 0.004,
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    answer = Answer(first_token_s=0.1, last_token_s=0.3, usage=usage, handoff=handoff)
    console = Console(file=io.StringIO(), width=100)
    console.print(answer_table(answer))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("100.00 ms", "50.00 ms", "2,000,000", "2.00 GB/s", "2 in 1 chunk(s)"):
        assert part in text


def test_logs_are_tailed_and_followed_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_text("a\nb\nloading 10%\rloading 50%")
    assert tail(path, 0).startswith("a\nb\n")
    assert last_log_line(tmp_path.parent, tmp_path.name) == "loading 50%"
    path.write_text('{"time": "x", "event": "died", "exit_code": 1}\n')
    assert last_log_line(tmp_path.parent, tmp_path.name) == "died: exit code 1"
    path.write_text("one\n")
    seen: list[str] = []

    def write(line: str) -> None:
        seen.append(line)
        if line == "one":
            path.rename(tmp_path / "worker.log.1")
            path.write_text("two\n")

    follow(path, lines=1, write=write, polls=4)
    assert seen == ["one", "two"]
