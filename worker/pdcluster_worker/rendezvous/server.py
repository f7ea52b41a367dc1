"""The bootstrap server of a prefill worker (HTTP): ranks register, decode workers look them up.

    PUT  /route             a rank registers its `Row`                    200 | 400 401 409 413
    GET  /route             all four ranks -1: the `Topology`; else a row 200 | 400 404 503
    GET  /health            200
    POST /register_dp_rank  which data-parallel rank took a room          200 | 400 401 413
    POST /query_dp_ranks    {"<room>": rank} for the rooms that are known 200 | 400 413

With a token configured, writing needs ``Authorization: Bearer <token>``. Reading does not, on
purpose: a decode worker reads from whatever ``bootstrap_host`` a client named, and must not hand
the cluster's secret to it.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import BadRequest, NotAllowed, WorkerError
from pdcluster_worker.core.log import Log, Sparse
from pdcluster_worker.rendezvous.bodies import read_body
from pdcluster_worker.rendezvous.messages import RANK_PARAMETERS, QueryRanks, RegisterRank, Row
from pdcluster_worker.rendezvous.registry import RoomRanks, RouteTable

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]

BODY_BYTES_MAX: Final = 64 << 10


class BootstrapServer:
    """State and handlers; `app` is what a server runs."""

    def __init__(self, clock: Clock, *, token: str = "", rooms_max: int = 4096) -> None:
        self.routes = RouteTable()
        self._rooms = RoomRanks(clock, rooms_max=rooms_max)
        self._token = token
        self._log = Log("rendezvous")
        self._sparse = Sparse(clock)

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/route", self._guarded(self._put_route), methods=["PUT"]),
                Route("/route", self._guarded(self._get_route), methods=["GET"]),
                Route("/health", self._guarded(self._health), methods=["GET"]),
                Route("/register_dp_rank", self._guarded(self._register), methods=["POST"]),
                Route("/query_dp_ranks", self._guarded(self._query), methods=["POST"]),
            ]
        )

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except WorkerError as error:
                return self._refuse(request, error)

        return guarded

    def _refuse(self, request: Request, error: WorkerError) -> Response:
        # Readers poll while we are incomplete (503): that is no news.
        if error.code != 503 and (held := self._sparse.due(error.kind)) is not None:
            self._log.warning(
                "refused", path=request.url.path, error=error.kind, reason=error, held_back=held
            )
        field = error.field if isinstance(error, BadRequest) else None
        body = {"error": {"message": str(error), "type": error.kind, "param": field}}
        headers = {"Retry-After": "1"} if error.code == 503 else {}
        return _json(body, status=error.code, headers=headers)

    def _authorize(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if self._token and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise NotAllowed("the token is missing or wrong")

    async def _put_route(self, request: Request) -> Response:
        self._authorize(request)
        row = await _body(request, Row)
        self.routes.put(row)
        self._log.info("rank registered", rank=row.key, instance=row.instance, pod_uid=row.pod_uid)
        return PlainTextResponse("OK")

    async def _get_route(self, request: Request) -> Response:
        dp, cp, tp, pp = (_rank(request, name) for name in RANK_PARAMETERS)
        if (dp, cp, tp, pp) == (-1, -1, -1, -1):
            return _json(self.routes.topology())
        row = self.routes.get((dp, cp, tp, pp))
        # Under the reference's names too, for tools that know those.
        reference = {"rank_ip": row.peer_host, "rank_port": row.peer_port}
        return _json({**msgspec.to_builtins(row), **reference})

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("OK")

    async def _register(self, request: Request) -> Response:
        self._authorize(request)
        message = await _body(request, RegisterRank)
        self._rooms.put(message.bootstrap_room, message.dp_rank)
        return PlainTextResponse("OK")

    async def _query(self, request: Request) -> Response:
        message = await _body(request, QueryRanks)
        found = self._rooms.get(message.bootstrap_rooms)
        return _json({str(room): rank for room, rank in found.items()})


async def _body(request: Request, kind: type[T]) -> T:
    data = await read_body(request, bytes_max=BODY_BYTES_MAX)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # msgspec names the place: "Expected `int`, got `str` - at `$.page_size`".
        place = str(error).rpartition("$.")[2].rstrip("`") if "$." in str(error) else None
        raise BadRequest(str(error), field=place) from error


def _rank(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    try:
        rank = int(text) if text.isascii() and len(text) <= 8 else None
    except ValueError:
        rank = None
    if rank is None or rank < -1:
        raise BadRequest(
            f"{name}: {text[:32]!r} is not a rank; must be an integer >= -1", field=name
        )
    return rank


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
