"""A stand-in for `python -m pdcluster_worker`: speaks its HTTP, computes nothing.

Reads the same environment (PDCLUSTER_LAUNCH, PDCLUSTER_POD_IP), answers in the same shapes, and
keeps what it was asked, so that a test can say what a router really sent to whom:
`GET /scripted/requests`. `POST /scripted/behaviour {"health": 503, "chat": 503, "delay_s": 0.1}`
changes its answers.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import ENV_LAUNCH, ENV_POD_IP, Role
from pdcluster_api.schema import decode

WORDS = ("KV", " moves", " between", " two", " processes", ".")
HANDOFF = {
    "pages": 3,
    "bytes": 1_000_000,
    "chunks": 1,
    "descriptors": 2,
    "seconds": 0.001,
    "total_seconds": 0.004,
}


class ScriptedWorker:
    """One worker's answers and what it was asked."""

    def __init__(self, launch: LaunchSpec) -> None:
        self.launch = launch
        self.requests: list[dict[str, Any]] = []
        self.behaviour: dict[str, Any] = {
            "health": 200,
            "chat": int(os.environ.get("SCRIPTED_CHAT", "200")),
            "delay_s": 0.0,
        }

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/ready", self.health),
                Route("/server_info", self.server_info),
                Route("/model_info", self.model_info),
                Route("/v1/models", self.models),
                Route("/v1/loads", self.loads),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.completion, methods=["POST"]),
                Route("/scripted/requests", self.asked),
                Route("/scripted/behaviour", self.behave, methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        return Response(status_code=self.behaviour["health"])

    async def server_info(self, request: Request) -> Response:
        model = self.launch.model
        return JSONResponse(
            {
                "model_path": model.source,
                "served_model_name": model.served_name,
                "disaggregation_mode": self.launch.role.value,
                "tokenizer_path": model.source,
                "tp_size": 1,
                "dp_size": 1,
            }
        )

    async def model_info(self, request: Request) -> Response:
        return JSONResponse({"model_path": self.launch.model.source, "is_generation": True})

    async def models(self, request: Request) -> Response:
        card = {"id": self.launch.model.served_name, "object": "model", "owned_by": "pdcluster"}
        return JSONResponse({"object": "list", "data": [card]})

    async def loads(self, request: Request) -> Response:
        status = {
            "role": self.launch.role.value,
            "stages": {"waiting": 1, "running": 0},
            "requests_done": len(self.requests),
            "handoff_bytes": HANDOFF["bytes"] * len(self.requests),
            "handoff_seconds": HANDOFF["seconds"] * len(self.requests),
        }
        return JSONResponse({"loads": [], "pdcluster": status})

    async def asked(self, request: Request) -> Response:
        return JSONResponse(self.requests)

    async def behave(self, request: Request) -> Response:
        self.behaviour.update(await request.json())
        return JSONResponse(self.behaviour)

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        await asyncio.sleep(self.behaviour["delay_s"])
        if self.behaviour["chat"] != 200:
            return JSONResponse({"error": "scripted"}, status_code=self.behaviour["chat"])
        if self.launch.role is Role.PREFILL or not body.get("stream"):
            return JSONResponse(self._answer(body))
        return StreamingResponse(self._stream(body), media_type="text/event-stream")

    async def completion(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        if self.behaviour["chat"] != 200:
            return JSONResponse({"error": "scripted"}, status_code=self.behaviour["chat"])
        return JSONResponse(
            {
                "id": "scripted",
                "object": "text_completion",
                "created": 1,
                "model": self.launch.model.served_name,
                "choices": [{"index": 0, "text": "KV", "finish_reason": "length"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )

    def _extras(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"pdcluster": {"handoff": HANDOFF}} if body.get("return_handoff") else {}

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(WORDS)}
        return {
            "id": "scripted",
            "object": "chat.completion",
            "created": 1,
            "model": self.launch.model.served_name,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13},
            **self._extras(body),
        }

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        head = {
            "id": "scripted",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": self.launch.model.served_name,
        }
        for index, word in enumerate(WORDS):
            last = index == len(WORDS) - 1
            choice = {
                "index": 0,
                "delta": {"content": word},
                "finish_reason": "stop" if last else None,
            }
            yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
        usage = {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
        final = head | {"choices": [], "usage": usage} | self._extras(body)
        yield f"data: {json.dumps(final)}\n\n"
        yield "data: [DONE]\n\n"


def main() -> None:
    launch = decode(LaunchSpec, json.loads(os.environ[ENV_LAUNCH]))
    app = ScriptedWorker(launch).app()
    config = uvicorn.Config(
        app,
        host=os.environ[ENV_POD_IP],
        port=launch.ports.http,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
