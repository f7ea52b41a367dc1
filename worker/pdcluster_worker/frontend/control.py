"""What operators and routers ask of a worker beside generation: probe, load, cache, abort."""

import asyncio
import secrets
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from pdcluster_worker.core.errors import Aborted, BadRequest, Unavailable
from pdcluster_worker.frontend.errors import json_response
from pdcluster_worker.frontend.fields import ABORT_FIELDS
from pdcluster_worker.frontend.frontend import Inquiry
from pdcluster_worker.frontend.info import RUNNING, STATUS_TIMEOUT_S
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.parse import read_params
from pdcluster_worker.wire.local import FAKE_HOST, Hop

PROBE_TIMEOUT_S: Final = 20.0  # a forward pass of a long chunk on a slow machine fits in
FLUSH_TIMEOUT_S_MAX: Final = 600.0
FLUSH_POLL_S: Final = 0.05
# Probes need no room of their own: they have no other leg.
_NOBODY: Final = Hop(host=FAKE_HOST, port=1, room=1)


async def health_generate(inquiry: Inquiry) -> ASGIApp:
    """One token through the engine, without a peer; 503 when none comes."""
    rid = f"HEALTH_CHECK_{secrets.token_hex(8)}"
    probe = Params(prompts=((0,),), rid=rid, max_new_tokens=1, temperature=0.0, ignore_eos=True)
    (generation,) = await inquiry.start([probe], hops=[_NOBODY])
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await generation.piece()
    except TimeoutError as error:
        raise Unavailable(f"no token in {PROBE_TIMEOUT_S:g} s") from error
    return PlainTextResponse("OK")


async def flush_cache(inquiry: Inquiry) -> ASGIApp:
    """200 once the worker is idle, as nothing is cached between requests; 400 while it is not."""
    deadline = inquiry.frontend.clock.now() + _timeout_s(inquiry.query.get("timeout"))
    while True:
        stages = (await inquiry.frontend.link.status(STATUS_TIMEOUT_S)).stages
        if not stages:
            return PlainTextResponse("Cache flushed.\n")
        if inquiry.frontend.clock.now() >= deadline:
            live = sum(stages.values())
            raise BadRequest(f"the cache is not flushed: {live} requests are live")
        await asyncio.sleep(FLUSH_POLL_S)


def _timeout_s(text: str | None) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= FLUSH_TIMEOUT_S_MAX:
        message = f"timeout: {text!r} is not allowed, must be 0 to {FLUSH_TIMEOUT_S_MAX:g} seconds"
        raise BadRequest(message, field="timeout")
    return seconds


async def abort_request(inquiry: Inquiry) -> ASGIApp:
    """End requests by name. Their clients get what there is so far, with "abort" as its end.

    Unknown names are no error: the request may have ended in this moment.
    """
    params = read_params(inquiry.object(), ABORT_FIELDS)
    if params.rid is None and not params.abort_all:
        raise BadRequest("rid: missing, and abort_all is not set", field="rid")
    error = Aborted(params.abort_message or "the request was aborted")
    found = [
        generation
        for generation in inquiry.frontend.live
        if generation.finish is None
        and (params.abort_all or generation.named(params.rid or "", prefix=params.prefix))
    ]
    for generation in found:
        generation.cut(error)
    return json_response({"aborted": len(found)})


async def get_load(inquiry: Inquiry) -> ASGIApp:
    """The older form of /v1/loads: one entry for the one data-parallel rank."""
    status = await inquiry.frontend.link.status(STATUS_TIMEOUT_S)
    live = sum(status.stages.values())
    running = sum(count for stage, count in status.stages.items() if stage in RUNNING)
    pages = status.pages.total - status.pages.free
    page_tokens = inquiry.frontend.settings.launch.engine.page_tokens
    return json_response(
        [
            {
                "dp_rank": 0,
                "num_reqs": live,
                "num_waiting_reqs": live - running,
                "num_tokens": pages * page_tokens,
            }
        ]
    )
