"""A TCP proxy that a test can turn: forward, delay, blackhole, cut.

forward    bytes pass
delay      bytes pass, each read held back for `delay_s`
blackhole  connections are taken and stay open, no byte passes (bytes wait, none is lost)
cut        open connections are broken, new ones are broken at once
"""

import asyncio
import contextlib
from enum import StrEnum

READ_BYTES = 1 << 16
Address = tuple[str, int]


class Mode(StrEnum):
    """What happens to connections and bytes."""

    FORWARD = "forward"
    DELAY = "delay"
    BLACKHOLE = "blackhole"
    CUT = "cut"


class Proxy:
    """Listens at one address, connects to another. Lives in one event loop."""

    def __init__(self, target: Address, *, delay_s: float = 0.05) -> None:
        self._target = target
        self._delay_s = delay_s
        self._mode = Mode.FORWARD
        self._passable = asyncio.Event()
        self._passable.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.connections = 0

    async def start(self, host: str, port: int = 0) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def turn(self, mode: Mode) -> None:
        """From now on, for open connections too."""
        self._mode = mode
        if mode is Mode.BLACKHOLE:
            self._passable.clear()
        else:
            self._passable.set()
        if mode is Mode.CUT:
            self._break()

    async def close(self) -> None:
        """Stop listening and break what is open."""
        self.turn(Mode.CUT)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._passable.wait()
            if self._mode is Mode.CUT:
                return
            back, onward = await asyncio.open_connection(*self._target)
            self._writers.add(onward)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, onward))
                group.create_task(self._pump(back, writer))
        except* OSError:
            pass  # refused or broken: the other end sees the same
        finally:
            for one in (writer, onward):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            await self._passable.wait()
            if self._mode is Mode.DELAY:
                await asyncio.sleep(self._delay_s)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
