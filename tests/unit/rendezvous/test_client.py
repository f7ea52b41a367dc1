"""The client against a real server, and against all that can be wrong with one."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from pdcluster_worker.core.errors import (
    Overloaded,
    PeerLost,
    PeerRefused,
    Unavailable,
    WireError,
)
from pdcluster_worker.rendezvous.client import REGISTER_TRIES_MAX, RendezvousClient
from pdcluster_worker.rendezvous.messages import (
    Address,
    Call,
    FetchTopology,
    Register,
    Result,
    Topology,
)
from pdcluster_worker.rendezvous.registry import RouteTable
from tests.unit.rendezvous.rows import row

TIMEOUT_S = 1.5


def topology() -> Topology:
    table = RouteTable()
    table.put(row())
    return table.topology()


def response(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Accepts, reads a request, lets ``answer`` do what it likes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                answer(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


class Harness:
    """A client and a way to wait for it."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.client = RendezvousClient(
            timeout_s=TIMEOUT_S,
            token="s3cret",
            calls_max=8,
            wake=self.woken.set,
            retry_delay_s=0.01,
            jitter=lambda: 1.0,
        )

    def result(self, call: Call) -> Result:
        self.woken.clear()
        number = self.client.submit(call)
        assert self.woken.wait(10)
        (result,) = self.client.results()
        assert (result.id, result.call) == (number, call)
        return result


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.client.close()
    harness.client.close()


def test_topology(harness: Harness) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(response(200, msgspec.json.encode(topology())))

    with server(answer) as address:
        result = harness.result(FetchTopology(address=address))
    assert result.error is None
    assert result.topology == topology()


def test_the_token_goes_to_our_own_server_only(harness: Harness) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def run() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(response(200, msgspec.json.encode(topology())))

    thread = threading.Thread(target=run)
    thread.start()
    harness.result(FetchTopology(address=listener.getsockname()))
    harness.result(Register(address=listener.getsockname(), row=row()))
    thread.join()
    listener.close()
    assert b"s3cret" not in seen[0]
    assert b"Bearer s3cret" in seen[1]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (503, b"", Unavailable),
        (400, b"why", PeerRefused),
        (401, b"why", PeerRefused),
        (404, b"why", PeerRefused),
        (302, b"", PeerRefused),
        (500, b"", PeerRefused),
        (200, b"", WireError),
        (200, b"{}", WireError),
        (200, b"\xff", WireError),
        (200, b"[" * 100_000, WireError),
        (200, b" " * (3 << 20), WireError),
    ],
)
def test_wrong_answers(harness: Harness, status: int, body: bytes, kind: type[Exception]) -> None:
    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it stops reading, as it should
            connection.sendall(response(status, body))

    with server(answer) as address:
        result = harness.result(FetchTopology(address=address))
    assert type(result.error) is kind
    assert result.topology is None


def test_unreachable(harness: Harness) -> None:
    for address in (
        ("127.0.0.1", 1),
        ("nowhere.invalid", 80),
        ("b d\x00", 80),
        ("::1", 1),
        ("", 1),
    ):
        assert isinstance(harness.result(FetchTopology(address=address)).error, PeerLost)


def test_broken_connection(harness: Harness) -> None:
    with server(lambda _: None) as address:
        assert isinstance(harness.result(FetchTopology(address=address)).error, PeerLost)


def test_black_hole_and_trickle_end_in_time_and_hold_up_nobody(harness: Harness) -> None:
    def trickle(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                threading.Event().wait(0.02)
        except OSError:
            pass

    def quick(connection: socket.socket) -> None:
        connection.sendall(response(200, msgspec.json.encode(topology())))

    with (
        socket.create_server(("127.0.0.1", 0)) as hole,
        server(trickle) as slow,
        server(quick) as good,
    ):
        calls = [
            FetchTopology(address=hole.getsockname()[:2]),
            FetchTopology(address=slow),
            FetchTopology(address=good),
        ]
        ids = [harness.client.submit(call) for call in calls]
        results: list[Result] = []
        while len(results) < 3:
            assert harness.woken.wait(10)
            harness.woken.clear()
            results += harness.client.results()
    assert results[0].id == ids[2]
    assert {type(result.error) for result in results[1:]} == {PeerLost}


def test_registration_is_retried_until_it_is_in(harness: Harness) -> None:
    answers = iter([503, 503, 200])

    def answer(connection: socket.socket) -> None:
        connection.sendall(response(next(answers), b"OK"))

    with server(answer) as address:
        result = harness.result(Register(address=address, row=row()))
    assert result.error is None
    assert next(answers, None) is None


def test_registration_gives_up(harness: Harness) -> None:
    tries: list[int] = []

    def answer(connection: socket.socket) -> None:
        tries.append(1)
        connection.sendall(response(503, b""))

    with server(answer) as address:
        assert isinstance(harness.result(Register(address=address, row=row())).error, Unavailable)
    assert len(tries) == REGISTER_TRIES_MAX


def test_a_refused_registration_is_not_retried(harness: Harness) -> None:
    tries: list[int] = []

    def answer(connection: socket.socket) -> None:
        tries.append(1)
        connection.sendall(response(409, b"page_size differs"))

    with server(answer) as address:
        error = harness.result(Register(address=address, row=row())).error
    assert isinstance(error, PeerRefused)
    assert "page_size" in str(error)
    assert len(tries) == 1


def test_calls_are_bounded(harness: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        for _ in range(8):
            harness.client.submit(FetchTopology(address=hole.getsockname()[:2]))
        with pytest.raises(Overloaded):
            harness.client.submit(FetchTopology(address=hole.getsockname()[:2]))
