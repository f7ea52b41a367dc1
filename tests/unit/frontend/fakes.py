"""A scheduler and a tokenizer that tests can steer."""

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import ENV_LAUNCH, ENV_RUN_DIR, Role
from pdcluster_api.states import Stage
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.errors import BadRequest, Unavailable, WorkerError
from pdcluster_worker.core.settings import Settings, load
from pdcluster_worker.frontend.app import create_app
from pdcluster_worker.frontend.frontend import Frontend
from pdcluster_worker.frontend.link import Inbox, Message
from pdcluster_worker.frontend.metrics import FrontendMetrics
from pdcluster_worker.wire.local import (
    Handoff,
    Hop,
    PoolUse,
    Ready,
    Status,
    Submit,
    Tokens,
    TopLogprob,
)

VOCAB = 260
EOS = 256
READY = Ready(instance="i-1", capacity_tokens=1000, vocab=VOCAB, eos_token_ids=(EOS,))
HANDOFF = Handoff(pages=3, bytes=4096, chunks=1, descriptors=2, seconds=0.001, total_seconds=0.004)
LEG = {"bootstrap_host": "10.0.0.9", "bootstrap_port": 8998, "bootstrap_room": 7}


class ByteTokenizer:
    """Token = byte; 256 ends the answer."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return bytes(i for i in ids if i < EOS).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        return "<eos>" if token == EOS else self.decode([token])

    def token_bytes(self, token: int) -> bytes:
        return b"" if token >= EOS else bytes([token])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        if messages[0]["role"] == "strange":
            raise ValueError("roles must alternate")
        return self.encode("".join(f"{m['role']}: {m['content']}\n" for m in messages))

    def detokenizer(self, *, skip_special: bool = True) -> "ByteDetokenizer":
        return ByteDetokenizer(skip_special=skip_special)


class ByteDetokenizer:
    def __init__(self, *, skip_special: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._skip = skip_special

    def push(self, token: int) -> str:
        if token >= EOS:
            return "" if self._skip else "<eos>"
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def answer(
    submit: Submit, text: str | bytes, *, step: int = 1, finish: str = "length", stop: bool = False
) -> list[Message]:
    """Messages of a whole answer, ``step`` tokens each; ``stop`` ends it with the eos token."""
    ids = list(text.encode() if isinstance(text, str) else text) + ([EOS] if stop else [])
    cuts = [ids[i : i + step] for i in range(0, len(ids), step)]
    k = submit.sampling.logprobs
    prompt = len(submit.input_ids) // 4
    return [
        Tokens(
            rid=submit.rid,
            ids=tuple(cut),
            logprobs=() if k is None else tuple(-0.5 for _ in cut),
            top=()
            if not k
            else tuple(
                tuple(TopLogprob(token=(t + j) % 256, logprob=-0.5 - j) for j in range(k))
                for t in cut
            ),
            finish=("stop" if stop else finish) if n == len(cuts) - 1 else None,
            matched_token=EOS if stop and n == len(cuts) - 1 else None,
            prompt_tokens=prompt,
            cached_tokens=2,
            handoff=HANDOFF if n == len(cuts) - 1 else None,
        )
        for n, cut in enumerate(cuts)
    ]


class FakeLink:
    """Answers every request with ``script(submit)`` at once; "" leaves it unanswered."""

    def __init__(self, script: Callable[[Submit], list[Message]] | None = None) -> None:
        self.script = script or (lambda submit: answer(submit, "hello"))
        self.ready: Ready | None = READY
        self.absence = "the model is not loaded yet"
        self.submitted: list[Submit] = []
        self.inboxes: dict[str, Inbox] = {}
        self.aborted: list[tuple[str, str, bool]] = []
        self.declined: list[tuple[Hop, WorkerError]] = []
        self.silent = False

    def decline(self, hop: Hop, error: WorkerError) -> None:
        self.declined.append((hop, error))

    def open(self, request: Submit) -> Inbox:
        if request.rid in self.inboxes and request.rid not in {r for r, _, _ in self.aborted}:
            raise BadRequest("rid: in use", field="rid")
        self.submitted.append(request)
        inbox = self.inboxes[request.rid] = Inbox()
        for message in self.script(request):
            inbox.put(message)
        return inbox

    def abort(self, rid: str, error: WorkerError, *, finished: bool = False) -> None:
        self.aborted.append((rid, str(error), finished))

    async def status(self, timeout_s: float) -> Status:
        if self.silent:
            raise Unavailable("silent")
        return STATUS

    async def metrics(self, timeout_s: float) -> bytes:
        if self.silent:
            raise Unavailable("silent")
        return b"pdcluster_output_tokens_total 5.0\n"

    def prompt(self, index: int = -1) -> list[int]:
        return list(map(int, np.frombuffer(self.submitted[index].input_ids, "<i4")))


STATUS = Status(
    instance="i-1",
    role="decode",
    cluster="local",
    fingerprint="f",
    draining=False,
    uptime_s=1.0,
    ticks=10,
    tick_max_ms=1.0,
    computing_s=0.0,
    stages={Stage.TRANSFER: 2, Stage.RUNNING: 3},
    pages=PoolUse(total=10, free=6, held=3, quarantined=1),
    rows=PoolUse(total=4, free=4, held=0, quarantined=0),
    peers={},
    requests_done=1,
    requests_failed=0,
    prompt_tokens=1,
    output_tokens=1,
    handoff_bytes=2_000_000_000,
    handoff_seconds=1.0,
    handoffs=4,
)


def settings(role: Role = Role.AGGREGATED, **limits: Any) -> Settings:
    launch = {
        "role": role.value,
        "model": {"source": "tiny://llama?seed=0", "servedName": "tiny"},
        "limits": limits,
    }
    return load({ENV_LAUNCH: json.dumps(launch), ENV_RUN_DIR: "run"})


def frontend(link: FakeLink, role: Role = Role.AGGREGATED, **limits: Any) -> Frontend:
    chosen = settings(role, **limits)
    assert isinstance(chosen.launch, LaunchSpec)
    return Frontend(
        settings=chosen,
        link=link,
        tokenizer=ByteTokenizer(),
        clock=SystemClock(),
        metrics=FrontendMetrics(role),
    )


def app(link: FakeLink, role: Role = Role.AGGREGATED, **limits: Any) -> Starlette:
    return create_app(frontend(link, role, **limits))


def client(link: FakeLink, role: Role = Role.AGGREGATED, **limits: Any) -> httpx.AsyncClient:
    """An HTTP client inside the process."""
    transport = httpx.ASGITransport(app=app(link, role, **limits))
    return httpx.AsyncClient(transport=transport, base_url="http://worker")


def events(text: str) -> list[Any]:
    """Data of server-sent events; the last one must be [DONE]."""
    parts = text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    assert parts.pop() == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]
