"""The registrar's HTTP surface.

PUT /desired   the list to keep (bearer token)       GET /desired   the same
GET /status    what the router lists, and why it is not ready
GET /ready     200 when the router really routes, else 503 with the reason
GET /health    200 while this process lives
"""

import hmac
import json
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pdcluster_api.schema import SchemaError
from pdcluster_operator.registrar.desired import read_desired, write_desired
from pdcluster_operator.registrar.loop import RegistrarLoop

BODY_BYTES_MAX: Final = 1 << 20


def registrar_app(loop: RegistrarLoop, token: str) -> Starlette:
    """Return the application; an empty token means that everybody may write."""

    async def put_desired(request: Request) -> Response:
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return JSONResponse({"error": "a bearer token is needed"}, status_code=401)
        body = await request.body()
        if len(body) > BODY_BYTES_MAX:
            return JSONResponse({"error": f"at most {BODY_BYTES_MAX} bytes"}, status_code=413)
        try:
            loop.put(read_desired(json.loads(body)))
        except SchemaError as error:
            problems = [str(problem) for problem in error.problems]
            return JSONResponse({"problems": problems}, status_code=400)
        except ValueError as error:
            return JSONResponse({"problems": [f"not JSON: {error}"]}, status_code=400)
        await loop.fresh()
        return JSONResponse(loop.status())

    async def get_desired(_: Request) -> Response:
        return JSONResponse(write_desired(loop.registration.desired))

    async def status(_: Request) -> Response:
        return JSONResponse(loop.status())

    async def ready(_: Request) -> Response:
        if loop.registration.ready:
            return PlainTextResponse("routing\n")
        return PlainTextResponse(f"{loop.registration.reason()}\n", status_code=503)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            Route("/desired", put_desired, methods=["PUT"]),
            Route("/desired", get_desired),
            Route("/status", status),
            Route("/ready", ready),
            Route("/health", health),
        ]
    )
