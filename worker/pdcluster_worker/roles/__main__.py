"""The scheduler process: ``python -m pdcluster_worker.roles``, started by the frontend."""

import signal
import sys

from pdcluster_worker.core import settings as settings_module
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.errors import WorkerError
from pdcluster_worker.core.log import Log, configure
from pdcluster_worker.core.process import die_with_parent, sleep_precisely
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.roles.build import build_scheduler


def main() -> int:
    """Run until SIGTERM. Exit codes: 0 stopped, 1 failed at start."""
    die_with_parent()
    sleep_precisely()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the frontend decides when we stop
    settings = settings_module.load()
    configure(settings.log_level)
    log = Log("scheduler", pod=settings.pod_name, role=settings.launch.role.value)
    settings.prepare()
    try:
        scheduler = build_scheduler(settings, clock=SystemClock(), log=log)
    except (ModelError, WorkerError, OSError, ValueError) as error:
        log.error("scheduler cannot start", error=str(error), kind=type(error).__name__)
        return 1
    loop = scheduler.loop

    def stop(_signal: int, _frame: object) -> None:
        loop.stopping = True
        scheduler.waker.wake()

    signal.signal(signal.SIGTERM, stop)
    log.info("scheduler ready", instance=loop.instance)
    try:
        loop.run()
    finally:
        scheduler.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
