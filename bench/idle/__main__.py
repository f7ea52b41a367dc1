"""``python -m bench.idle``: what a served, idle cluster costs, process by process.

CPU is the share of one core over ``--seconds``; start is from the process's creation to the
cluster's first routed answer; memory is resident and, for shared libraries, proportional.
"""

import argparse
import asyncio
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import Settings, load_settings
from pdcluster_operator.spec.manifest import parse_manifest

START_S = 120.0
SETTLE_S = 3.0
NAMES = {
    "pdcluster_worker.roles": "scheduler",
    "pdcluster_worker.sidecar": "sidecar",
    "pdcluster_worker": "frontend",
    "pdcluster_operator.registrar": "registrar",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One process."""

    pod: str
    process: str
    cpu_percent: float
    rss_mb: float
    pss_mb: float
    threads: int


def name_of(process: psutil.Process) -> str:
    """What a process of a pod is."""
    line = process.cmdline()
    for module, name in NAMES.items():
        if module in line:
            return name
    return "router" if any("smg" in part for part in line[:3]) else Path(line[0]).name


def measure(processes: list[psutil.Process], before: dict[int, float], seconds: float) -> list[Row]:
    """One row per process that still lives."""
    rows = []
    for process in processes:
        memory, times = process.memory_full_info(), process.cpu_times()
        used = times.user + times.system - before[process.pid]
        rows.append(
            Row(
                pod=process.environ().get("PDCLUSTER_POD_NAME", ""),
                process=name_of(process),
                cpu_percent=100 * used / seconds,
                rss_mb=memory.rss / 1e6,
                pss_mb=memory.pss / 1e6,
                threads=process.num_threads(),
            )
        )
    return sorted(rows, key=lambda row: (row.pod, row.process))


async def run(file: Path, seconds: float) -> tuple[float, list[Row]]:
    """Seconds from nothing to the first routed answer, and the table."""
    own = load_settings()
    with tempfile.TemporaryDirectory(prefix="pdc-idle-") as state:
        settings = Settings(
            state_dir=Path(state),
            cache_dir=own.cache_dir,
            local_range="127.82.0.0/16",
            inherited=own.inherited,
        )
        clock = asyncio.get_running_loop()
        started = clock.time()
        async with Session(parse_manifest(file.read_text(encoding="utf-8")), settings) as session:
            async with asyncio.timeout(START_S):
                await session.serving()
            start_s = clock.time() - started
            await asyncio.sleep(SETTLE_S)
            processes = psutil.Process().children(recursive=True)
            times = {p.pid: p.cpu_times() for p in processes}
            before = {pid: t.user + t.system for pid, t in times.items()}
            await asyncio.sleep(seconds)
            rows = measure(processes, before, seconds)
            session.stop()
            await session.ended()
    return start_s, rows


def main() -> None:
    """Measure, print, write to bench/out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=Path("examples/quickstart.yaml"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    given = parser.parse_args()
    start_s, rows = asyncio.run(run(given.file, given.seconds))
    lines = [f"Serving {start_s:.1f} s after the command.", ""]
    lines += ["| pod | process | CPU of one core, % | RSS, MB | PSS, MB | threads |"]
    lines += ["|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| {row.pod} | {row.process} | {row.cpu_percent:.1f} | {row.rss_mb:.0f} "
            f"| {row.pss_mb:.0f} | {row.threads} |"
        )
    text = "\n".join(lines) + "\n"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "idle.md").write_text(text, encoding="utf-8")
    plain = {"start_s": start_s, "rows": [asdict(row) for row in rows]}
    (given.out / "idle.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
