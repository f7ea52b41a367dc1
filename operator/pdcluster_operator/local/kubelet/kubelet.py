"""The acting half of the local kubelet: carries out what the pods' machines decide."""

import asyncio
import logging
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from pdcluster_operator.clock import Clock, rfc3339, within
from pdcluster_operator.errors import LocalRunError
from pdcluster_operator.local.kubelet import reaper
from pdcluster_operator.local.kubelet.addresses import AddressPool
from pdcluster_operator.local.kubelet.memory import OomWatch
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.pod import parse_pod
from pdcluster_operator.local.kubelet.prober import Prober
from pdcluster_operator.local.kubelet.runner import Node, PodRunner
from pdcluster_operator.local.kubelet.source import PodRecord, PodSource
from pdcluster_operator.local.kubelet.status import refused_status

_LOG: Final = logging.getLogger(__name__)
_IDLE_S: Final = 5.0  # look again even when nothing seems to happen
_REAPER_END_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things of this kubelet are."""

    logs: Path
    network: str
    inherited: Mapping[str, str]


class Kubelet:
    """Use as `async with Kubelet(...) as kubelet`; leaving ends every container."""

    def __init__(
        self, source: PodSource, places: Places, clock: Clock, options: KubeletOptions
    ) -> None:
        self._source = source
        self._clock = clock
        self._options = options
        self._addresses = AddressPool(places.network, options.lock_port)
        self._wake = asyncio.Event()
        self._runners: dict[str, PodRunner] = {}
        self._refused: set[str] = set()
        self._sessions: set[int] = set()
        self._pod_number = 0
        self._epoch = clock.wall() - timedelta(seconds=clock.now())
        self._node = Node(
            kubelet_id=uuid.uuid4().hex,
            scratch=Path(tempfile.mkdtemp(prefix="pdc-")),
            logs=places.logs,
            inherited=places.inherited,
            clock=clock,
            options=options,
            prober=Prober(),
            secret=source.secret,
            wake=self._wake.set,
            leash=self,
            oom=OomWatch(),
            stamp=lambda seconds: rfc3339(self._epoch + timedelta(seconds=seconds)),
        )

    @property
    def scratch(self) -> Path:
        """A short-named folder that vanishes with the kubelet."""
        return self._node.scratch

    async def __aenter__(self) -> Self:
        script = reaper.__file__
        self._reaper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", script, self._node.kubelet_id, str(self._node.scratch)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._tasks = [asyncio.create_task(self._loop()), asyncio.create_task(self._watch())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        reaper.kill_all(f"{self._node.kubelet_id}/", self._sessions)
        for runner in self._runners.values():
            await runner.abandon()
        await self._node.prober.close()
        self._addresses.close()
        if self._reaper.stdin is not None:
            self._reaper.stdin.close()
        await within(_REAPER_END_S, self._reaper.wait())
        shutil.rmtree(self._node.scratch, ignore_errors=True)

    def began(self, session: int) -> None:
        """Put a session on the reaper's leash."""
        self._sessions.add(session)
        self._tell_reaper(f"+{session}\n")

    def ended(self, session: int) -> None:
        """Let a session that is over go: its number may come again."""
        self._sessions.discard(session)
        self._tell_reaper(f"-{session}\n")

    def _tell_reaper(self, line: str) -> None:
        if self._reaper.stdin is not None:
            self._reaper.stdin.write(line.encode())

    async def died(self) -> None:
        """Return never, or raise what ended the kubelet's loop: then its owner must end too."""
        await asyncio.gather(*self._tasks)

    def sessions(self, uid: str) -> dict[str, int]:
        """Return the session of each running container of a pod."""
        return self._runners[uid].sessions if uid in self._runners else {}

    async def _watch(self) -> None:
        while True:
            await self._source.changed()
            self._wake.set()

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            self._sync()
            now = self._clock.now()
            due = [runner.machine.next_due() for runner in self._runners.values()]
            wait = min([_IDLE_S, *(moment - now for moment in due)])
            await within(max(wait, 0.001), self._wake.wait())

    def _sync(self) -> None:
        """Bring what runs in line with the source. Never blocks."""
        self._node.oom.mark(self._clock.now())
        records = {record.uid: record for record in self._source.pods()}
        for uid in self._refused & records.keys():
            if records[uid].deleting:
                self._refused.discard(uid)
                self._source.gone(uid)
        for uid, record in records.items():
            if uid not in self._runners and uid not in self._refused:
                self._admit(record)
        for uid, runner in tuple(self._runners.items()):
            record_now = records.get(uid)
            if record_now is None or record_now.deleting:
                runner.delete(record_now.grace_s if record_now else 0.0)
            runner.tick()
            status = runner.status()
            if record_now is not None and status != record_now.status:
                self._source.report(uid, status)
            if runner.machine.deleting and runner.idle:
                del self._runners[uid]
                runner.close()
                self._addresses.free(runner.address)
                self._source.gone(uid)

    def _admit(self, record: PodRecord) -> None:
        if record.deleting:
            self._source.gone(record.uid)
            return
        address = ""
        self._pod_number += 1
        try:
            spec = parse_pod(record.manifest)
            address = self._addresses.take()
            self._runners[record.uid] = PodRunner(spec, address, self._pod_number, self._node)
        # An OSError comes from its folders: a hostPath that cannot be made, a disk that is full.
        except (LocalRunError, OSError) as error:
            message = str(error)
            if isinstance(error, OSError):
                message = f"its folders cannot be made: {error.filename}: {error.strerror}"
            _LOG.error("pod %s: %s", record.name, message)
            if address:
                self._addresses.free(address)
            self._refused.add(record.uid)
            self._source.report(record.uid, refused_status(message))
