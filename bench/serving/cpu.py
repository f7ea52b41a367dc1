"""CPU seconds by process, and what the rest of the machine took meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from bench.idle.__main__ import name_of
from pdcluster_api.names import ENV_POD_IP, ENV_POD_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU seconds since each process began."""

    busy: float  # of the machine, all cores
    own: float  # of this process and its descendants
    processes: Mapping[tuple[str, str], float]  # (pod's name or address, process) -> seconds


def usage() -> Usage:
    """Now. Processes of ours that have ended meanwhile count as others' work."""
    times = psutil.cpu_times()
    this = psutil.Process()
    own = _seconds(this)
    processes: dict[tuple[str, str], float] = {}
    for process in this.children(recursive=True):
        try:
            seconds, environment = _seconds(process), process.environ()
            pod = environment.get(ENV_POD_NAME) or environment.get(ENV_POD_IP, "")
            key = (pod, name_of(process))
        except (psutil.NoSuchProcess, IndexError):
            continue
        own += seconds
        processes[key] = processes.get(key, 0.0) + seconds
    return Usage(busy=sum(times) - times.idle - times.iowait, own=own, processes=processes)


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def others(before: Usage, after: Usage, *, seconds: float) -> float:
    """Cores that other work kept busy between the two."""
    return max(0.0, (after.busy - before.busy - (after.own - before.own)) / seconds)


def used(before: Usage, after: Usage) -> dict[tuple[str, str], float]:
    """CPU seconds by process between the two."""
    return {key: value - before.processes.get(key, 0.0) for key, value in after.processes.items()}
