"""Start, watch and signal the processes of one container run."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pdcluster_operator.clock import within
from pdcluster_operator.local.kubelet.reaper import MARK, kill_all

_PR_SET_PDEATHSIG: Final = 1
_CHUNK_BYTES: Final = 1 << 16
_PIPE_CLOSE_S: Final = 2.0  # after the last process is dead the pipe closes at once
_PRCTL: Final = ctypes.CDLL(None).prctl  # found now: a forked child should look nothing up
# Programs of this very installation, whatever PATH says.
_OWN_PROGRAMS: Final = {
    "python": sys.executable,
    "python3": sys.executable,
    "smg": str(Path(sys.executable).with_name("smg")),
}


@dataclass(frozen=True, slots=True)
class Command:
    """What to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    mark: str  # see reaper.py
    cwd: str | None = None


class Leash(Protocol):
    """Is told of every session that begins and ends, so that none outlives the kubelet."""

    def began(self, session: int) -> None: ...

    def ended(self, session: int) -> None: ...


class Running:
    """A started process and everything it starts."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        command: Command,
        sink: Callable[[bytes], None],
        leash: Leash,
    ) -> None:
        self._process = process
        self._mark = command.mark
        self._sink = sink
        self._leash = leash
        leash.began(process.pid)
        self._copier = asyncio.create_task(self._copy_output())

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        """TERM goes to the first process, which owns its children; KILL goes to all."""
        if number == signal.SIGKILL:
            kill_all(self._mark, (self.pid,))
        # Not Popen.send_signal: it polls, and so may take the exit status from under asyncio.
        elif self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Return the exit code (128 + signal when killed) once *no* process of the run is left."""
        code = await self._process.wait()
        # Like a container runtime: when the first process ends, so does the rest.
        for _ in range(100):
            if kill_all(self._mark, (self.pid,)) == 0:
                break
            await asyncio.sleep(0.01)
        self._leash.ended(self.pid)
        await within(_PIPE_CLOSE_S, self._copier)
        return code if code >= 0 else 128 - code

    async def _copy_output(self) -> None:
        stream = self._process.stdout
        while stream is not None and (data := await stream.read(_CHUNK_BYTES)):
            self._sink(data)


async def start(command: Command, *, sink: Callable[[bytes], None], leash: Leash) -> Running:
    """Start it in a session of its own; its output goes to `sink`. Raises OSError."""
    parent = os.getpid()

    def die_with_parent() -> None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    process = await asyncio.create_subprocess_exec(
        _OWN_PROGRAMS.get(command.argv[0], command.argv[0]),
        *command.argv[1:],
        env={**command.env, MARK: command.mark},
        cwd=command.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    return Running(process, command, sink, leash)


async def run_once(
    command: Command, leash: Leash, *, timeout_s: float, output_bytes_max: int
) -> tuple[bool, str]:
    """Run a probe or hook to its end; returns whether it exited 0 in time, and its last output."""
    output = bytearray()

    def keep(data: bytes) -> None:
        output.extend(data)
        del output[:-output_bytes_max]

    try:
        running = await start(command, sink=keep, leash=leash)
    except OSError as error:
        return False, str(error)
    ending = asyncio.create_task(running.wait())
    if not await within(timeout_s, asyncio.shield(ending)):
        running.send(signal.SIGKILL)
        await ending
        return False, f"no end within {timeout_s:g} s"
    code = await ending
    return code == 0, output.decode(errors="replace").strip() or f"exit code {code}"
