"""``python -m pdcluster_worker.sidecar``: serve until SIGTERM or SIGINT."""

import asyncio
import signal
import sys

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.log import Log, configure
from pdcluster_worker.core.settings import Settings, SettingsError, load
from pdcluster_worker.sidecar.server import sidecar


async def run(settings: Settings) -> None:
    """Until a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with sidecar(settings, SystemClock()):
        await stop.wait()


def main() -> int:
    """Exit status: 0 after a signal, 1 when a port is taken, 2 for bad settings."""
    try:
        settings = load()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    configure(settings.log_level)
    try:
        asyncio.run(run(settings))
    except OSError as error:
        Log("sidecar").error("cannot serve", reason=error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
