"""Looks after the scheduler: it is another process, and one that hangs says nothing.

    answers                          nothing to do
    silent for a moment              not ready: routers choose another worker (`/health`)
    silent or computing for too long not live: a restart would help (`/live`); who waits is told

The sidecar concludes the same, for the operator. The worker's own probes do not depend on it.
"""

import asyncio
from typing import Final

from pdcluster_worker.core.errors import Unavailable
from pdcluster_worker.core.log import Log
from pdcluster_worker.frontend.frontend import Frontend
from pdcluster_worker.rendezvous.view import Observer, State
from pdcluster_worker.rendezvous.watcher import Watcher

INTERVAL_S: Final = 1.0

_log: Final = Log("frontend")


async def watch(frontend: Frontend, *, interval_s: float = INTERVAL_S) -> None:
    """Keep ``frontend.scheduler`` true, and end what a hung scheduler will not; until cancelled."""
    limits = frontend.settings.launch.limits
    watcher = Watcher(
        frontend.link,
        Observer(loop_hang_s=limits.loop_hang_s, compute_hang_s=limits.compute_hang_s),
        clock=frontend.clock,
        socket_path=frontend.settings.status_address.removeprefix("ipc://"),
    )
    state = State.STARTING
    while True:
        view = frontend.scheduler = await watcher.view()
        if view.state is not state:
            state = view.state
            line = _log.warning if state is State.HUNG else _log.info
            line("scheduler", state=state, reason=view.reason)
        if not view.live and frontend.live:
            _log.error("requests cut", live=len(frontend.live), reason=view.reason)
            for generation in frontend.live:
                generation.cut(Unavailable(view.reason))
        await asyncio.sleep(interval_s)
