"""The level-triggered loop: ask the router, decide, call, again."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from pdcluster_operator.clock import Clock, within
from pdcluster_operator.errors import RouterError
from pdcluster_operator.registrar.core import Add, Call, Prove, Registration, Remove
from pdcluster_operator.registrar.desired import Desired, load, save, write_desired
from pdcluster_operator.registrar.router_api import RouterApi

_LOG: Final = logging.getLogger(__name__)
BUSY_S: Final = 0.2  # between passes while something is missing
CALM_S: Final = 1.0  # between passes when all is well: how late a router's restart is noticed


class RegistrarLoop:
    """Owns the registration; one pass at a time."""

    def __init__(self, router: RouterApi, state_file: Path, clock: Clock) -> None:
        self.registration = Registration(load(state_file))
        self._router = router
        self._state_file = state_file
        self._clock = clock
        self._changed = asyncio.Event()
        self._begun = 0  # passes
        self._done = 0
        self._passed = asyncio.Condition()
        self._proof: asyncio.Task[None] | None = None

    def put(self, desired: Desired) -> None:
        """Take a new list; it is on disk when this returns."""
        if desired != self.registration.desired:
            save(self._state_file, desired)
            self.registration.desired = desired
            self._changed.set()

    async def fresh(self) -> None:
        """Return when a pass that began after this call is over: `status` is the present then."""
        wanted = self._begun + 1
        self._changed.set()
        async with self._passed:
            await self._passed.wait_for(lambda: self._done >= wanted)

    def status(self) -> dict[str, Any]:
        """Return what `GET /status` shows."""
        registration = self.registration
        return {
            "ready": registration.ready,
            "converged": registration.converged,
            "reason": registration.reason(),
            "routable": dict(registration.routable()),
            "desired": write_desired(registration.desired),
            "listed": [
                {"url": one.url, "role": one.role, "pairing": one.pairing, "healthy": one.healthy}
                for one in registration.listed or ()
            ],
        }

    async def run(self) -> None:
        """Pass after pass, for ever."""
        while True:
            self._changed.clear()
            await self.one_pass()
            wait = CALM_S if self.registration.converged else BUSY_S
            await within(wait, self._changed.wait())

    async def one_pass(self) -> None:
        """Observe, decide, act once."""
        self._begun += 1
        try:
            listed = await self._router.workers()
        except RouterError as error:
            _LOG.info("router: %s", error)
            listed = None
        self.registration.observe(listed, self._clock.now())
        async with self._passed:
            self._done = self._begun
            self._passed.notify_all()
        calls = self.registration.calls(self._clock.now())
        await asyncio.gather(*(self._call(call) for call in calls))

    async def _call(self, call: Call) -> None:
        try:
            match call:
                case Add(worker=worker):
                    _LOG.info("adding %s %s", worker.role, worker.url)
                    await self._router.add(worker)
                case Remove(id=worker_id, url=url):
                    _LOG.info("removing %s", url)
                    await self._router.remove(worker_id)
                case Prove():
                    # A cold worker may take long; the list is kept meanwhile.
                    self._proof = asyncio.create_task(self._prove(call))
        except RouterError as error:
            _LOG.warning("%s", error)

    async def _prove(self, proof: Prove) -> None:
        problem = None
        try:
            await self._router.prove(self.registration.desired.model)
            _LOG.info("the router routes to %s", ", ".join(sorted(proof.urls)))
        except RouterError as error:
            problem = str(error)
            _LOG.warning("%s", problem)
        self.registration.on_proof(proof, error=problem, now=self._clock.now())
        self._changed.set()
