"""Why a run ended and why a pod is not ready: from states and errors, never from chatter."""

from typing import Any

import pytest

from pdcluster_operator.local.kubelet.last_words import LINE_BYTES_MAX, LastWords
from pdcluster_operator.local.kubelet.memory import OomWatch
from pdcluster_operator.local.reasons import awaited, first_start, last_end, why_not_ready

ERROR = b'{"level": "error", "event": "the model cannot be served", "error": "no config.json"}\n'
INFO = b'{"level": "info", "event": "request ended", "reason": "stop"}\n'


def heard(*pieces: bytes) -> LastWords:
    words = LastWords()
    for piece in pieces:
        words.take(piece)
    return words


@pytest.mark.parametrize(
    ("pieces", "errors"),
    [
        ((ERROR, INFO), "the model cannot be served: no config.json"),
        ((ERROR[:20], ERROR[20:], INFO, b"loading 5 %\rloading 9 %"), "the model cannot be served"),
        ((b"2026-01-01 ERROR smg: port in use\n2026-01-01 INFO done\n",), "2026-01-01 ERROR smg"),
        ((b"\x1b[31mERROR\x1b[0m no\n",), "ERROR no"),
        (
            (b'Traceback (most recent call last):\n  File "x"\nValueError: bad\nbye\n',),
            "ValueError",
        ),
        ((b"error: unexpected argument\n",), "error: unexpected argument"),
        (
            (
                b"x" * 3 * LINE_BYTES_MAX,
                b"\nerror: last",
            ),
            "error: last",
        ),
        ((INFO, b"2026 INFO no ERROR here\n", b"[1, 2]\n", b"{not json\n"), ""),
    ],
)
def test_errors_are_told_from_other_lines(pieces: tuple[bytes, ...], errors: str) -> None:
    said = heard(*pieces).errors()
    assert said.startswith(errors)
    assert bool(said) == bool(errors)


def test_the_cause_comes_before_the_parent_that_reports_it() -> None:
    died = b'{"level": "error", "event": "the scheduler has died", "exit_code": -9}\n'
    trace = b"Traceback (most recent call last):\n  ...\nRuntimeError: no driver\n"
    expected = "RuntimeError: no driver; the scheduler has died: killed by SIGKILL"
    assert heard(trace, died, died).errors() == expected


def test_a_usage_message_is_better_than_nothing_but_progress_and_chatter_are_not() -> None:
    assert heard(b"PDCLUSTER_LAUNCH is not set\n", INFO, b"loading 9 %\n").any() == (
        "PDCLUSTER_LAUNCH is not set"
    )
    assert heard(INFO, b"INFO hello\n").any() == ""


def test_the_kernels_count_tells_memory_from_a_plain_kill() -> None:
    kills = 3
    watch = OomWatch(lambda: kills)
    watch.mark(0.0)
    assert not watch.rose()
    kills = 4
    watch.mark(1.0)
    assert watch.rose()  # the death may be noticed only now
    watch.mark(1.5)
    watch.mark(2.0)
    assert not watch.rose()


def status(**changes: Any) -> dict[str, Any]:
    return {"name": "worker", "ready": False, "started": False, "state": {}, **changes}


def ended(code: int, *, reason: str = "Error", message: str = "") -> dict[str, Any]:
    signal = {"signal": code - 128} if code > 128 else {}
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, **signal}}


RUNNING = {"running": {"probeMessage": "/health does not answer yet"}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (ended(1, message="no config.json"), "exit code 1: no config.json"),
        (ended(0, reason="Completed"), "exit code 0"),
        (ended(137), "killed by SIGKILL"),
        (ended(139, message="bad"), "killed by SIGSEGV; its last error: bad"),
        (ended(137, reason="OOMKilled"), "out of memory, killed by the kernel"),
        (ended(0, reason="liveness probe failed: hangs"), "liveness probe failed: hangs"),
        (
            ended(128, reason="StartError", message="x: not found"),
            "cannot be started: x: not found",
        ),
    ],
)
def test_an_end_is_told_by_its_cause(last: dict[str, Any], expected: str) -> None:
    item = status(state=WAITING, lastState=last)
    assert last_end([item]) == f"worker: {expected}"
    assert why_not_ready([item]) == f"worker: {expected}, restarting"


def test_a_run_after_another_names_both_and_one_that_was_ready_only_its_probe() -> None:
    again = status(state=RUNNING, lastState=ended(137))
    assert why_not_ready([again]) == (
        "worker: restarted (killed by SIGKILL); now /health does not answer yet"
    )
    assert why_not_ready([again | {"started": True}]) == "worker: /health does not answer yet"
    silent = again | {"started": True, "state": {"running": {}}}
    assert why_not_ready([silent]) == "worker: restarted (killed by SIGKILL)"
    assert why_not_ready([again | {"ready": True}]) == ""


def test_the_first_start_is_known_and_has_no_end() -> None:
    fresh = status(state={"waiting": {"reason": "ContainerCreating"}})
    assert (first_start([fresh]), last_end([fresh]), why_not_ready([fresh])) == (True, "", "")
    assert not first_start([status(state=RUNNING, lastState=ended(1))])
    assert not first_start([status(state=RUNNING, started=True)])


@pytest.mark.parametrize(
    ("ready", "served", "expected"),
    [
        ({"decode": 2}, False, "waiting for the first pair: prefill 0/1 ready, decode 2/2 ready"),
        (
            {"prefill": 1, "decode": 1},
            False,
            "waiting for the other workers: prefill 1/1 ready, decode 1/2 ready",
        ),
        ({"decode": 2}, True, "workers are missing: prefill 0/1 ready, decode 2/2 ready"),
        ({"prefill": 1, "decode": 2}, False, ""),
    ],
)
def test_what_is_awaited_is_counted(ready: dict[str, int], served: bool, expected: str) -> None:
    assert awaited({"prefill": 1, "decode": 2}, ready, served=served) == expected


def test_a_pool_that_is_off_is_named() -> None:
    said = awaited({"prefill": 0, "decode": 1}, {"decode": 1}, served=False)
    assert "spec.prefill.replicas is 0" in said
