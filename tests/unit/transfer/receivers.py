"""The peer that contract tests write into: in this process for loopback, a real one for NIXL.

A receiver's memory is readable here, and it says with each notice what its memory held just then.
"""

import mmap
import os
import signal
import zlib
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.ports import Region, TransferPeer, Transport
from pdcluster_worker.transfer import create_transport
from pdcluster_worker.transfer.loopback import LoopbackNetwork, LoopbackWrite, Verdict

ITEMS = {"kv": 64, "meta": 8}
ITEM_BYTES = {"kv": 1024, "meta": 256}
WAIT_S = 20.0  # far more than needed; only a broken build waits as long

Bytes = NDArray[np.uint8]
Arrival = tuple[str, bytes, int]  # agent, notice, crc32 of the KV memory when it came


def split_memory(raw: Bytes) -> dict[str, Bytes]:
    """``{"kv": [64, 1024], "meta": [8, 256]}`` over one block of bytes."""
    kv_bytes = ITEMS["kv"] * ITEM_BYTES["kv"]
    return {
        "kv": raw[:kv_bytes].reshape(ITEMS["kv"], ITEM_BYTES["kv"]),
        "meta": raw[kv_bytes:].reshape(ITEMS["meta"], ITEM_BYTES["meta"]),
    }


def checksum(kv: Bytes) -> int:
    return zlib.crc32(kv.tobytes())


def memory_bytes() -> int:
    return sum(ITEMS[name] * ITEM_BYTES[name] for name in ITEMS)


def regions_of(memory: dict[str, Bytes]) -> tuple[Region, ...]:
    return tuple(
        Region(
            name=name,
            address=array.ctypes.data,
            item_bytes=array.shape[1],
            items=array.shape[0],
        )
        for name, array in memory.items()
    )


class Receiver(Protocol):
    """What a contract test needs of the other side."""

    peer: TransferPeer
    memory: dict[str, Bytes]

    def arrivals(self, count: int) -> list[Arrival]:
        """Wait for that many notices."""
        ...

    def stall(self) -> None:
        """Make it answer nothing. For NIXL before the first connection: a warm one goes on."""
        ...

    def resume(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class NearReceiver:
    """A loopback agent in this process."""

    def __init__(self, network: LoopbackNetwork) -> None:
        self._network = network
        self.memory = split_memory(np.zeros(memory_bytes(), dtype=np.uint8))
        self._transport = create_transport(
            "loopback", clock=SystemClock(), regions=regions_of(self.memory), network=network
        )
        self.peer = self._transport.local()

    def arrivals(self, count: int) -> list[Arrival]:
        found = [(a, n, checksum(self.memory["kv"])) for a, n in self._transport.notices()]
        assert len(found) == count
        return found

    def stall(self) -> None:
        def wait(write: LoopbackWrite) -> Verdict:
            return Verdict.WAIT if write.agent == self.peer.agent else Verdict.GO

        self._network.hook = wait

    def resume(self) -> None:
        self._network.hook = None

    def kill(self) -> None:
        self._network.kill(self.peer.agent)

    def close(self) -> None:
        self._transport.close()


class FarReceiver:
    """An agent in a process of its own; its memory is a file that both map."""

    def __init__(self, backend: str) -> None:
        self._file = os.memfd_create("receiver")
        os.ftruncate(self._file, memory_bytes())
        self.memory = split_memory(_mapped(self._file))
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._process = context.Process(target=_serve, args=(backend, path, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.peer: TransferPeer = self._ask("peer")

    def arrivals(self, count: int) -> list[Arrival]:
        found: list[Arrival] = self._ask("arrivals", count)
        assert len(found) == count
        return found

    def _ask(self, *question: object) -> Any:
        self._pipe.send(question)
        assert self._pipe.poll(WAIT_S)
        return self._pipe.recv()

    def stall(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        self.kill()
        self._process.close()
        self._pipe.close()
        os.close(self._file)


def _mapped(file: int) -> Bytes:
    return np.frombuffer(mmap.mmap(file, memory_bytes()), dtype=np.uint8)


def _serve(backend: str, path: str, pipe: Connection) -> None:
    """The far side: ticks like a scheduler and answers until it is killed."""
    with open(path, "r+b") as file:
        memory = split_memory(_mapped(file.fileno()))
    transport = create_transport(backend, clock=SystemClock(), regions=regions_of(memory))
    arrived: list[Arrival] = []
    while True:
        _tick(transport, memory["kv"], arrived)
        if pipe.poll(0.0002):
            what, *arguments = pipe.recv()
            if what == "peer":
                pipe.send(transport.local())
            else:
                pipe.send(_first(arguments[0], lambda: _tick(transport, memory["kv"], arrived)))
                arrived.clear()


def _tick(transport: Transport, kv: Bytes, arrived: list[Arrival]) -> list[Arrival]:
    arrived += [(agent, notice, checksum(kv)) for agent, notice in transport.notices()]
    return arrived


def _first(count: int, tick: Callable[[], list[Arrival]]) -> list[Arrival]:
    clock = SystemClock()
    until = clock.now() + WAIT_S
    while len(arrived := tick()) < count and clock.now() < until:
        clock.sleep(0.0002)
    return list(arrived)
