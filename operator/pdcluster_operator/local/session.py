"""One cluster running on this machine, from `up` to the last process gone.

1. starting    pods are created; workers load
2. serving     the router answered a request of ours, for every worker
3. degraded    it did once; now something is missing, see `reason`
4. stopping    the router goes first, so that nothing new arrives; a moment later the workers
               drain; what is then left of the router has nothing to do and is ended
5. ended       nothing is left
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Self

import httpx

from pdcluster_api.names import LABEL_ROLE, PORT_ROUTER, ROLE_ROUTER, Role
from pdcluster_operator.clock import Clock, SystemClock, within
from pdcluster_operator.local.control import control_server
from pdcluster_operator.local.doubts import doubted, find_doubts
from pdcluster_operator.local.kubelet import Kubelet, KubeletOptions, MemorySource, Places
from pdcluster_operator.local.loads import Loads
from pdcluster_operator.local.pods import ClusterPods, summary, worker_address
from pdcluster_operator.local.reasons import awaited
from pdcluster_operator.local.registrars import RegistrarClient
from pdcluster_operator.local.rundir import RunDir
from pdcluster_operator.render import TOKEN_KEY, Placement, token_secret_name
from pdcluster_operator.render.launch import served_name
from pdcluster_operator.settings import Settings
from pdcluster_operator.spec import PDCluster

_PASS_S: Final = 0.25  # between passes when nothing is reported
_LOADS_S: Final = 1.0
_ROUTER_LEAD_S: Final = 0.5  # router told to end -> workers told to end
_CONTROL_END_S: Final = 3.0
_RESTARTS_MAX: Final = 5  # of a pod that never was ready
_WORKERS: Final = (Role.PREFILL.value, Role.DECODE.value)


class Session:
    """Use as `async with Session(...) as session`; leaving ends everything."""

    def __init__(
        self,
        cluster: PDCluster,
        settings: Settings,
        options: KubeletOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.cluster = cluster
        self.rundir = RunDir(settings.state_dir, cluster.metadata.name)
        self._clock = clock or SystemClock()
        self._options = options or KubeletOptions()
        self._settings = settings
        self._source = MemorySource()
        self._served_once = False
        self._doubts: dict[str, str] = {}
        self._stopping_since: float | None = None
        self.changed = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self.rundir.owned())
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._control.should_exit = True
        await asyncio.wait(self._tasks[-1:], timeout=_CONTROL_END_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        settings, token = self._settings, secrets.token_urlsafe(32)
        metadata = self.cluster.metadata
        secret = {TOKEN_KEY: token.encode()}
        self._source.put_secret(
            namespace=metadata.namespace, name=token_secret_name(self.cluster), data=secret
        )
        placement = Placement(cache_host_path=str(settings.cache_dir))
        self._pods = ClusterPods(self.cluster, self._source, placement)
        places = Places(
            logs=self.rundir.logs, network=settings.local_range, inherited=settings.inherited
        )
        kubelet = Kubelet(self._source, places, self._clock, self._options)
        self._kubelet = await stack.enter_async_context(kubelet)
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        self._client = client
        self._registrars = RegistrarClient(client, token, self._clock)
        self._loads = Loads(client, self._clock)
        socket = self._kubelet.scratch / "control.sock"
        self._control = control_server(
            socket, snapshot=self._fresh_snapshot, stop=self._stop_from_outside
        )
        self._tasks = [
            asyncio.create_task(self._drive()),
            asyncio.create_task(self._watch_loads()),
            asyncio.create_task(self._kubelet.died()),
            asyncio.create_task(self._control.serve()),
        ]
        while not self._control.started and not self._tasks[-1].done():
            await self._clock.sleep(0.01)
        self.rundir.publish(socket)

    # For whoever runs it.

    def stop(self, *, now: bool = False) -> None:
        """Begin the end; `now` ends without drain, also when the end has begun."""
        if self._stopping_since is None:
            self._stopping_since = self._clock.now()
            self._pods.plan(replicas={ROLE_ROUTER: 0})
        if now:
            self._pods.hurry()
        self.changed.set()

    def check(self) -> None:
        """Raise what broke the session, if something did; its tasks never end by themselves."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def serving(self) -> None:
        """Return when requests are answered; raises what ended the session instead."""
        await self._until(lambda: self.phase == "serving")

    def hopeless(self) -> str:
        """Return why waiting for service is in vain: a worker that never was ready keeps ending.

        The kubelet goes on restarting it, as it should; a command that waits may give up.
        """
        if self._served_once:
            return ""
        for pod in self._pods.records():
            what = summary(pod)
            if what["phase"] == "Failed" or (not pod.ready and what["restarts"] >= _RESTARTS_MAX):
                why = what["lastEnd"] or what["message"]
                times = f" (after {what['restarts']} restarts)" if what["restarts"] else ""
                return f"{pod.name}: {why}{times}"
        return ""

    async def ended(self) -> None:
        """Return when it was stopped and nothing is left."""
        await self._until(lambda: self.phase == "ended")

    @property
    def phase(self) -> str:
        """See the module's list."""
        if self._stopping_since is not None:
            return "stopping" if self._pods.records() else "ended"
        if self._converged():
            return "serving"
        return "degraded" if self._served_once else "starting"

    @property
    def endpoint(self) -> str:
        """Base URL of the (first) router, or nothing before it has an address."""
        routers = [pod for pod in self._pods.records(ROLE_ROUTER) if not pod.deleting]
        addresses = [pod.status.get("podIP") for pod in routers]
        return f"http://{addresses[0]}:{PORT_ROUTER}" if addresses and addresses[0] else ""

    async def _fresh_snapshot(self) -> dict[str, Any]:
        """Return the snapshot after asking the workers once more."""
        self._doubts = await find_doubts(self._client, self._pods.records(*_WORKERS))
        try:
            return self.snapshot()
        finally:
            self._doubts = {}

    def snapshot(self) -> dict[str, Any]:
        """Return everything that `status` and the live view show."""
        metadata = self.cluster.metadata
        routable: dict[str, int] = {}
        for status in self._registrars.status.values():
            routable = status.get("routable", routable)
        return {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "model": served_name(self.cluster),
            "phase": self.phase,
            "reason": self._reason(),
            "hopeless": self.hopeless(),
            "endpoint": self.endpoint,
            "routable": routable,
            "pods": doubted([summary(pod) for pod in self._pods.records()], self._doubts),
            "load": self._loads.snapshot(),
            "logs": str(self.rundir.logs),
        }

    def _reason(self) -> str:
        """Return what is awaited; nothing once all is well, or when the end has begun."""
        if self.phase not in ("starting", "degraded"):
            return ""
        replicas, pods = self.cluster.spec.replicas(), self._pods.records(*_WORKERS)
        wanted = {role: replicas[role] for role in _WORKERS}
        able = (pod for pod in pods if pod.ready and pod.name not in self._doubts)
        ready = Counter(pod.labels[LABEL_ROLE] for pod in able)
        if text := awaited(wanted, ready, served=self._served_once):
            return text
        if not self.endpoint:
            return "waiting for the router"
        reasons = (str(status.get("reason", "")) for status in self._registrars.status.values())
        said = next(filter(None, reasons), "waiting for the router")
        for pod in pods:  # the router knows addresses; a person knows pods
            said = said.replace(worker_address(pod), pod.name)
        return said

    # The passes.

    async def _pass(self) -> None:
        if self._stopping_since is None:
            self._pods.plan()
        elif self._clock.now() - self._stopping_since >= _ROUTER_LEAD_S:
            self._pods.plan(replicas=dict.fromkeys((*_WORKERS, ROLE_ROUTER), 0))
            if not self._pods.records(*_WORKERS):
                self._pods.hurry(ROLE_ROUTER)
        if self._stopping_since is None:
            routers = [pod for pod in self._pods.records(ROLE_ROUTER) if not pod.deleting]
            await self._registrars.refresh(routers, self._pods.desired_workers())
        self._served_once = self._served_once or self._converged()
        self.changed.set()

    async def _drive(self) -> None:
        while True:
            await self._pass()
            await within(_PASS_S, self._source.reported())

    async def _watch_loads(self) -> None:
        while True:
            await self._loads.refresh(self._pods.records(*_WORKERS))
            await self._clock.sleep(_LOADS_S)

    def _converged(self) -> bool:
        """Every pod is there and ready, and every router routes to every worker."""
        spec, pods = self.cluster.spec, self._pods.records()
        wanted = sum(spec.replicas().values())
        statuses = self._registrars.status.values()
        return (
            len(pods) == wanted
            and all(pod.ready for pod in pods)
            and not self._doubts
            and len(statuses) == spec.router.replicas
            and all(status.get("converged") for status in statuses)
        )

    def _stop_from_outside(self, now: bool) -> None:  # noqa: FBT001 - a callback
        self.stop(now=now)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            waiting = asyncio.create_task(self.changed.wait())
            await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self.check()
