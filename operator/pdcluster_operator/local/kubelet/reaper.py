"""Ends what a killed kubelet left behind.

Every process that the kubelet starts carries a mark in its environment, which its children inherit
whatever session or group they move to; and it starts each in a session of its own, because a
program that rewrites its title (the router does) may overwrite the mark. A reaper is started
before the first container and holds the read end of a pipe whose write end only the kubelet has;
through it it hears of every session (`+123`, `-123`). When the pipe closes, the kubelet is gone,
however it went (`kill -9` included): the reaper kills everything of these sessions and everything
marked, and removes the kubelet's scratch folder. After an orderly end it finds nothing to do.

Runs as a plain script without site-packages, to cost little and to depend on nothing.
"""

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

MARK = "PDCLUSTER_KUBELET"  # value: <kubelet id>/<pod uid>/<container>/<run>
_SWEEPS_MAX = 200  # 50 ms apart: ten seconds for a fork storm to die out
_QUIET_SWEEPS = 2  # a process may have been forking while it was looked for


def belonging(prefix: str, sessions: Collection[int] = ()) -> Iterator[int]:
    """Yield the ids of live processes of these sessions, or whose mark starts with `prefix`."""
    wanted = f"{MARK}={prefix}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            environ = (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        state, session = stat[0], int(stat[3])
        marked = any(item.startswith(wanted) for item in environ.split(b"\0"))
        if state != b"Z" and (marked or session in sessions):
            yield int(entry.name)


def kill_all(prefix: str, sessions: Collection[int] = ()) -> int:
    """Kill what `belonging` finds; returns how many there were."""
    count = 0
    for pid in belonging(prefix, sessions):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def main() -> None:
    """`reaper.py KUBELET_ID SCRATCH_FOLDER`, with the pipe as standard input."""
    kubelet, scratch = sys.argv[1], sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it must outlive the kubelet
    sessions: set[int] = set()
    for line in sys.stdin:
        change = sessions.add if line[0] == "+" else sessions.discard
        change(int(line[1:]))
    wait, quiet = threading.Event(), 0
    for _ in range(_SWEEPS_MAX):
        quiet = quiet + 1 if kill_all(f"{kubelet}/", sessions) == 0 else 0
        if quiet >= _QUIET_SWEEPS:
            break
        wait.wait(0.05)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
