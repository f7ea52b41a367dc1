"""Error bodies in the shape that each API's clients parse."""

from enum import StrEnum
from typing import Any, Final

import msgspec
from starlette.responses import Response

from pdcluster_worker.core.errors import BadRequest, WorkerError

RETRY_AFTER_S: Final = "1"  # with every 503: another worker, or this one in a moment


class Api(StrEnum):
    """Whose conventions an endpoint follows."""

    OPENAI = "openai"
    NATIVE = "native"  # /generate and the worker's own endpoints


def error_body(error: WorkerError, api: Api) -> dict[str, Any]:
    """What a client reads."""
    field = error.field if isinstance(error, BadRequest) else None
    client_fault = 400 <= error.code < 500
    if api is Api.NATIVE:
        return {
            "object": "error",
            "message": str(error),
            "type": error.kind,
            "param": field,
            "code": error.code,
        }
    return {
        "error": {
            "message": str(error),
            "type": BadRequest.kind if client_fault else "server_error",
            "param": field,
            "code": error.kind,
        }
    }


def error_response(error: WorkerError, api: Api) -> Response:
    """The body with its status; a 503 says when to come back."""
    headers = {"Retry-After": RETRY_AFTER_S} if error.code == 503 else None
    return json_response(error_body(error, api), status=error.code, headers=headers)


def json_response(
    value: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON answer."""
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
