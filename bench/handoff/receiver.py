"""The receiving process: spins on one agent and stamps the moment at which a notice is seen.

The sender puts a task into one shared word: which agent, and a running number. The receiver answers
that it is ready, and then with the notice's time. Both processes read the same monotonic clock.
"""

import os
import time
import zlib
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch

from bench.handoff.shapes import Shape
from bench.handoff.side import Side
from pdcluster_worker.core.ports import PageIds, TransferPeer

TASK, READY, STAMP_NS, SEEN = range(4)
PRODUCT, BARE = range(2)
AGENTS = 2  # task = number * AGENTS + agent, so that both change at once
SENDER = "bench-sender"
RECEIVER = "bench-receiver"
WAIT_S = 30.0


class Receiver:
    """The sender's end."""

    def __init__(self, shape: Shape, *, core: int) -> None:
        context = get_context("spawn")
        self._shared = SharedMemory(create=True, size=64)
        self._words = np.ndarray(8, dtype=np.int64, buffer=self._shared.buf)
        self._words[:] = 0
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(shape, self._shared.name, theirs),
            kwargs={"core": core},
            daemon=True,
        )
        self._process.start()
        self.peer: TransferPeer
        self.peer, self.metadata, self.address = self._pipe.recv()
        self._number = 0
        self._task = 0

    def introduce(self, metadata: bytes) -> None:
        """Give it the sender's bare metadata."""
        self._pipe.send(metadata)
        self._pipe.recv()

    def time(self, agent: int, send: Callable[[], None]) -> float:
        """Seconds from calling ``send`` until the receiver saw the notice on ``agent``."""
        words = self._words
        self._number += 1
        self._task = self._number * AGENTS + agent
        words[TASK] = self._task
        self._await(READY)
        begin = time.monotonic_ns()
        send()
        self._await(SEEN)
        return (int(words[STAMP_NS]) - begin) / 1e9

    def _await(self, word: int) -> None:
        until = time.monotonic() + WAIT_S
        while self._words[word] != self._task:
            if time.monotonic() > until:
                raise TimeoutError("the receiver saw no notice")

    def checksum(self, pages: PageIds) -> int:
        """crc32 of these pages as the receiver sees them."""
        self._pipe.send(pages)
        result: int = self._pipe.recv()
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        del self._words
        self._shared.close()
        self._shared.unlink()


def checksum(side: Side, pages: PageIds) -> int:
    """crc32 of pages of this side, in the order given."""
    raw = side.pool.tensor.view(torch.uint8).view(side.shape.pool_pages, -1)
    return zlib.crc32(raw.numpy()[pages].tobytes())


def _serve(shape: Shape, shared_name: str, pipe: Connection, *, core: int) -> None:
    os.sched_setaffinity(0, {core})
    shared = SharedMemory(name=shared_name)
    words = np.ndarray(8, dtype=np.int64, buffer=shared.buf)
    side = Side(shape, RECEIVER)
    pipe.send(side.introduction())
    polls: dict[int, Callable[[], object]] = {
        PRODUCT: side.transport.notices,
        BARE: side.bare.get_new_notifs,
    }
    while True:
        task = int(words[TASK])
        if task != words[SEEN]:
            poll = polls[task % AGENTS]
            words[READY] = task
            while not poll():
                pass
            words[STAMP_NS] = time.monotonic_ns()
            words[SEEN] = task
        elif pipe.poll(0):
            question = pipe.recv()
            if isinstance(question, bytes):
                side.bare.add_remote_agent(question)
                pipe.send(None)
            else:
                pipe.send(checksum(side, question))
        for idle in polls.values():
            idle()
