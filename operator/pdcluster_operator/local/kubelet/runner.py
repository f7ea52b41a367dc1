"""One pod's processes: turns its machine's actions into calls, and their outcome into news."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

from pdcluster_operator.clock import Clock
from pdcluster_operator.local.kubelet.actions import Action, Ask, PreStop, Signal, Start
from pdcluster_operator.local.kubelet.environ import (
    Surroundings,
    container_argv,
    container_environment,
)
from pdcluster_operator.local.kubelet.last_words import SIGNALLED, LastWords
from pdcluster_operator.local.kubelet.logs import RotatingLog
from pdcluster_operator.local.kubelet.machine import ORDINARY, Ending, PodMachine
from pdcluster_operator.local.kubelet.memory import OomWatch
from pdcluster_operator.local.kubelet.options import KubeletOptions
from pdcluster_operator.local.kubelet.pod import PodSpec
from pdcluster_operator.local.kubelet.prober import Prober
from pdcluster_operator.local.kubelet.process import Command, Leash, Running, run_once, start
from pdcluster_operator.local.kubelet.status import Stamp, pod_status
from pdcluster_operator.local.kubelet.volumes import PodVolumes, SecretReader

_ABANDON_S: Final = 3.0  # the dead are collected at once; only a probe may still be out


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What all pods of one kubelet share."""

    kubelet_id: str
    scratch: Path
    logs: Path
    inherited: Mapping[str, str]
    clock: Clock
    options: KubeletOptions
    prober: Prober
    secret: SecretReader
    wake: Callable[[], None]
    stamp: Stamp
    leash: Leash
    oom: OomWatch


class PodRunner:
    """Owns the pod's folders, logs and processes. Everything runs on the kubelet's event loop."""

    def __init__(self, spec: PodSpec, address: str, number: int, node: Node) -> None:
        self.machine = PodMachine(spec, node.options)
        self.address = address
        self._node = node
        self._spec = spec
        self._volumes = PodVolumes(spec, node.scratch / str(number), node.secret)
        self._running: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._base: dict[str, Command] = {}
        self._logs: dict[str, RotatingLog] = {}
        for name, container in self.machine.containers.items():
            around = Surroundings(
                spec,
                address,
                node.options.node_name,
                node.secret,
                self._volumes.translator(container.spec),
            )
            variables = container_environment(container.spec, around)
            argv = container_argv(container.spec.argv, variables=variables, around=around)
            env = {**node.inherited, **variables}
            mark = f"{node.kubelet_id}/{spec.uid}/{name}"
            self._base[name] = Command(argv, env, mark, container.spec.working_dir)

    @property
    def idle(self) -> bool:
        """The machine is done and no task of ours is left."""
        return self.machine.finished and not self._running

    @property
    def sessions(self) -> dict[str, int]:
        """The session of each running container; its id is the first process's."""
        return {name: running.pid for name, running in self._running.items()}

    def delete(self, grace_s: float | None) -> None:
        """Begin the pod's end, or hurry it."""
        if not self.machine.deleting or grace_s is not None:
            self.machine.delete(self._node.clock.now(), grace_s)

    def tick(self) -> None:
        """Carry out what is due."""
        for action in self.machine.tick(self._node.clock.now()):
            self._carry_out(action)

    def status(self) -> dict[str, Any]:
        return pod_status(self.machine, pod_ip=self.address, stamp=self._node.stamp)

    def close(self) -> None:
        """Release folders and log files; nothing runs any more."""
        for task in self._tasks:
            task.cancel()
        for log in self._logs.values():
            log.close()
        self._volumes.remove()

    async def abandon(self) -> None:
        """The kubelet leaves and has killed everything: collect the remains."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_ABANDON_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.close()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start():
                self._spawn(self._start(action))
            case Ask():
                self._spawn(self._ask(action))
            case PreStop():
                self._spawn(self._pre_stop(action))
            case Signal(container=name, signal=number) if name in self._running:
                self._running[name].send(number)
            case Signal():
                pass  # it ended meanwhile

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, action: Start) -> None:
        name, clock = action.container, self._node.clock
        base = self._base[name]
        command = Command(base.argv, base.env, f"{base.mark}/{action.run}", base.cwd)
        log, words = self._log(name), LastWords()

        def sink(data: bytes) -> None:
            log.write(data)
            words.take(data)

        try:
            running = await start(command, sink=sink, leash=self._node.leash)
        except OSError as error:
            message = f"{base.argv[0]}: {error.strerror or error}"
            log.write(f"cannot start: {message}\n".encode())
            self.machine.on_start_failed(name, action.run, message=message, now=clock.now())
            self._node.wake()
            return
        self._running[name] = running
        self.machine.on_started(name, action.run, now=clock.now())
        self._node.wake()
        try:
            code = await running.wait()
        finally:
            del self._running[name]
        now, ending = clock.now(), self._ending(code, words)
        self.machine.on_exit(name, action.run, exit_code=code, now=now, ending=ending)
        self._node.wake()

    def _ending(self, code: int, words: LastWords) -> Ending:
        """Return why a run ended. The kernel may have killed the first process or one of its
        children, whose death it then reports itself."""
        if code == 0:
            return ORDINARY
        killed = code > SIGNALLED
        message = words.errors() if killed else words.any()
        sigkill = code == SIGNALLED + SIGKILL or SIGKILL.name in message
        return Ending(message, sigkill and self._node.oom.rose())

    async def _ask(self, action: Ask) -> None:
        probe = self.machine.containers[action.container].spec.probes[action.kind]
        if probe.command is not None:
            answer = await self._run(action.container, probe.command, probe.timeout_s)
        else:
            answer = await self._node.prober.ask(probe, self.address)
        now = self._node.clock.now()
        self.machine.on_probe(
            action.container, action.run, kind=action.kind, answer=answer, now=now
        )
        self._node.wake()

    async def _pre_stop(self, action: PreStop) -> None:
        hook = self.machine.containers[action.container].spec.pre_stop
        if hook is not None:
            ok, message = await self._run(action.container, hook, self._spec.grace_s)
            if not ok:
                self._log(action.container).write(f"preStop hook failed: {message}\n".encode())
        self.machine.on_pre_stop_done(action.container, action.run)
        self._node.wake()

    async def _run(self, name: str, argv: tuple[str, ...], timeout_s: float) -> tuple[bool, str]:
        base = self._base[name]
        command = Command(argv, base.env, f"{base.mark}/exec", base.cwd)
        output_bytes_max = self._node.options.exec_output_bytes_max
        return await run_once(
            command, self._node.leash, timeout_s=timeout_s, output_bytes_max=output_bytes_max
        )

    def _log(self, name: str) -> RotatingLog:
        if name not in self._logs:
            options = self._node.options
            self._logs[name] = RotatingLog(
                self._node.logs / self._spec.name / f"{name}.log",
                bytes_max=options.log_bytes_max,
                files_max=options.log_files_max,
            )
        return self._logs[name]
