"""`python -m pdcluster_operator.registrar`: see the package's docstring."""

import argparse
import asyncio
import logging
from pathlib import Path

import httpx
import uvicorn

from pdcluster_operator.clock import SystemClock
from pdcluster_operator.registrar.app import registrar_app
from pdcluster_operator.registrar.loop import RegistrarLoop
from pdcluster_operator.registrar.router_api import RouterApi


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="pdcluster-registrar", description=__doc__)
    parser.add_argument("--router", required=True, help="base URL of the router's control API")
    parser.add_argument("--host", required=True, help="address to listen on")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--state-file", type=Path, required=True, help="keeps the desired list")
    parser.add_argument("--token-file", type=Path, help="file with the token that writers show")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> None:
    token = args.token_file.read_text(encoding="utf-8").strip() if args.token_file else ""
    async with httpx.AsyncClient(trust_env=False) as client:
        loop = RegistrarLoop(RouterApi(args.router, client), args.state_file, SystemClock())
        config = uvicorn.Config(
            registrar_app(loop, token),
            host=args.host,
            port=args.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as group:
            passes = group.create_task(loop.run())
            await server.serve()
            passes.cancel()


if __name__ == "__main__":
    main()
