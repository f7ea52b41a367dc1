"""A writer and a receiver per backend. One NIXL receiver process serves most tests of a run."""

from collections.abc import Iterator

import pytest

from pdcluster_worker.transfer import BACKENDS
from pdcluster_worker.transfer.loopback import LoopbackNetwork
from tests.unit.transfer.receivers import FarReceiver, NearReceiver, Receiver
from tests.unit.transfer.writers import Writer, make_writer


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def network() -> LoopbackNetwork:
    return LoopbackNetwork()


@pytest.fixture
def writer(backend: str, network: LoopbackNetwork) -> Iterator[Writer]:
    made = make_writer(backend, network)
    yield made
    made.transport.close()


@pytest.fixture
def small_posts(backend: str, network: LoopbackNetwork) -> Iterator[Writer]:
    """A writer whose posts hold four KV pages at most."""
    made = make_writer(backend, network, post_bytes_max=4096)
    yield made
    made.transport.close()


@pytest.fixture(scope="session")
def _lasting() -> Iterator[FarReceiver]:
    made = FarReceiver("nixl")
    yield made
    made.close()


@pytest.fixture
def receiver(
    backend: str, network: LoopbackNetwork, request: pytest.FixtureRequest
) -> Iterator[Receiver]:
    """One that the test leaves alive; its memory starts as zeros."""
    if backend == "loopback":
        near = NearReceiver(network)
        yield near
        near.close()
        return
    far: FarReceiver = request.getfixturevalue("_lasting")
    for array in far.memory.values():
        array[:] = 0
    yield far


@pytest.fixture
def victim(backend: str, network: LoopbackNetwork) -> Iterator[Receiver]:
    """One that the test may stall or kill."""
    made = NearReceiver(network) if backend == "loopback" else FarReceiver(backend)
    yield made
    made.close()
