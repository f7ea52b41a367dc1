"""Bounded local messages; log lines."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.core.log import ROOT, Log, Sparse, configure
from pdcluster_worker.wire import codec
from pdcluster_worker.wire.local import Ask, Sampling, Submit
from tests.unit.frontend.fakes import STATUS
from tests.unit.rendezvous.test_registry import FakeClock

SUBMIT = Submit(rid="r", input_ids=b"\0\0\0\0", sampling=Sampling())


def test_round_trip() -> None:
    assert codec.to_scheduler.read(codec.write(SUBMIT)) == SUBMIT
    assert codec.answer.read(codec.write(STATUS)) == STATUS


def test_sizes_are_bounded() -> None:
    with pytest.raises(WireError, match="at most 10"):
        codec.write(SUBMIT, bytes_max=10)
    small: codec.Reader[Ask] = codec.Reader(Ask, bytes_max=10)
    with pytest.raises(WireError, match="at most 10"):
        small.read(b"x" * 11)


# An empty map is a question with its defaults.
@given(st.binary(max_size=100).filter(lambda frame: frame != b"\x80"))
def test_any_bytes(frame: bytes) -> None:
    for reader in (codec.to_scheduler, codec.to_frontend, codec.ask, codec.answer):
        with pytest.raises(WireError):
            reader.read(frame)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def restore_logging() -> object:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def test_json_lines(stream: io.StringIO) -> None:
    configure("info", stream=stream)
    log = Log("frontend", pod="p-0")
    log.debug("unseen")
    log.bind(rid="r").info("request ended", seconds=1.5, text="x" * 1000)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "request ended"
    assert (first["level"], first["logger"]) == ("info", "frontend")
    assert (first["pod"], first["rid"], first["seconds"]) == ("p-0", "r", 1.5)
    assert len(first["text"]) == 500
    assert "ValueError: why" in second["traceback"]


def test_console_lines(stream: io.StringIO) -> None:
    configure("debug", stream=stream, as_json=False)
    Log("frontend").debug("started", port=80)
    assert stream.getvalue().endswith("debug   frontend   started port=80\n")
    assert logging.getLogger(ROOT).level == logging.DEBUG


def test_sparse_counts_what_it_holds_back() -> None:
    clock = FakeClock()
    sparse = Sparse(clock, interval_s=10)
    assert [sparse.due("a") for _ in range(3)] == [0, None, None]
    assert sparse.due("b") == 0
    clock.sleep(10)
    assert sparse.due("a") == 2
    for number in range(5000):
        sparse.due(str(number))
    assert len(sparse._seen) <= 1024
