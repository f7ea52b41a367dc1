"""One pipeline driven by hand: the test is the other leg, the engine, the transport and the clock.

Every call of a pipeline is made here at `now`; what it wants done is collected in `effects`.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.ports import BatchResult, Contact, RowContent, StepResult, WriteStats
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.kv.rows import RowAllocator
from pdcluster_worker.pipeline.base import PipelineSettings
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.effects import Effect, Emit, Launch, Send, Write
from pdcluster_worker.pipeline.peers import PeerLimits, PeerTable
from pdcluster_worker.pipeline.prefill import PrefillPipeline
from pdcluster_worker.pipeline.request import DIGEST_BYTES
from pdcluster_worker.sim.toy import HostMemory, RowMemory
from pdcluster_worker.wire.local import Abort as LocalAbort
from pdcluster_worker.wire.local import Failed, Hop, Sampling, Submit, Tokens
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import Body, Hello, Introduction, Publish, Welcome

US = "aa" * 16
PEER = "bb" * 16
OTHER = "cc" * 16
ADDRESS = ("prefill", 8998)
LIMITS = LimitSpec()

E = TypeVar("E")
B = TypeVar("B")


def intro(
    instance: str, *, role: str = "prefill", pod_uid: str = "", **changes: str
) -> Introduction:
    """Of a worker that fits ours unless ``changes`` says otherwise."""
    texts = {"fingerprint": "f", "schema": "s", "transport": "t", **changes}
    return Introduction(
        role=role, pod_uid=pod_uid, host=f"host-{instance[:2]}", port=8997, agent=instance,
        metadata=b"", regions=(), **texts,
    )  # fmt: skip


def peer_table(
    emit: list[Effect], limits: LimitSpec = LIMITS, *, role: str = "decode"
) -> PeerTable:
    """Ours."""
    return PeerTable(
        instance=US,
        intro=intro(US, role=role),
        limits=PeerLimits(
            heartbeat_interval_s=limits.heartbeat_interval_s,
            heartbeat_timeout_s=limits.heartbeat_timeout_s,
            transfer_timeout_s=limits.transfer_timeout_s,
            forget_s=limits.orphan_ttl_s,
        ),
        emit=emit.append,
    )


def ids(count: int) -> bytes:
    """A prompt of ``count`` tokens on the wire."""
    return np.arange(1, count + 1, dtype="<i4").tobytes()


def digest(count: int) -> bytes:
    """Of that prompt."""
    return hashlib.blake2b(ids(count), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the worker under test."""

    pages: int = 64
    rows: int = 9
    page_tokens: int = 4
    chunk_tokens: int = 16
    running_max: int = 8
    extra_slots: int = 16
    reserved: int = 0
    host_pages: int = 64
    limits: LimitSpec = field(default_factory=LimitSpec)

    def settings(self) -> PipelineSettings:
        """For a pipeline."""
        return PipelineSettings(
            capacity_tokens=self.pages * self.page_tokens, page_tokens=self.page_tokens,
            page_bytes=100, row_bytes=10, chunk_tokens=self.chunk_tokens,
            running_max=self.running_max, extra_slots=self.extra_slots,
            reserved_decode_tokens=self.reserved,
            eos_token_ids=(0,), limits=self.limits,
        )  # fmt: skip

    def pools(self) -> Pools:
        """All free."""
        return Pools(PageAllocator(self.pages), RowAllocator(self.rows))


class Rig:
    """What both roles' rigs share."""

    pipeline: PrefillPipeline | DecodePipeline

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.pools = sizes, sizes.pools()
        self.outbox: list[Effect] = []
        self.effects: list[Effect] = []
        self.now = 100.0
        self.idle = True

    def tick(self, seconds: float = 0.0) -> None:
        """Time passes, in steps that no heartbeat notices as a gap of ours."""
        end = self.now + seconds
        while True:
            self.pipeline.tick(self.now, engine_idle=self.idle)
            self.collect()
            if self.now >= end:
                return
            self.now = min(end, self.now + 0.5)

    def collect(self) -> None:
        """Carry out nothing, remember everything."""
        for effect in self.pipeline.drain_outbox():
            self.idle = self.idle and not isinstance(effect, Launch)
            self.effects.append(effect)
        self.pools.check()

    def frame(self, body: Body, *, sender: str = PEER) -> None:
        """A frame of a peer comes."""
        self.pipeline.frame(sender, body, now=self.now)
        self.collect()

    def notice(self, notice: Notice) -> None:
        """A peer's write has completed."""
        self.pipeline.notice(notice, self.now)
        self.collect()

    def submit(self, rid: str, length: int, *, room: int, **sampling: object) -> None:
        """A request of ``length`` prompt tokens."""
        fields = {"max_new_tokens": 8, **sampling}
        message = Submit(
            rid=rid, input_ids=ids(length), sampling=Sampling(**fields),  # type: ignore[arg-type]
            hop=Hop(host=ADDRESS[0], port=ADDRESS[1], room=room),
        )  # fmt: skip
        self.pipeline.submit(message, self.now)
        self.collect()

    def abort(self, rid: str, *, finished: bool = False, kind: str = "client_gone") -> None:
        """The client leaves."""
        message = LocalAbort(rid=rid, reason="client gone", kind=kind, finished=finished)
        self.pipeline.abort(message, self.now)
        self.collect()

    def results(self, tokens: Iterable[int] = (), *, error: str | None = None) -> None:
        """The pass that was launched last ends; each sampling step gets the next token, or 5."""
        launch = self.of(Launch)[-1]
        left = list(tokens)
        steps = tuple(
            StepResult(key=s.key, token=(left.pop(0) if left else 5) if s.sample else None)
            for s in launch.steps
        )
        self.idle = True
        result = BatchResult(results=() if error else steps, seconds=0.1, error=error)
        self.pipeline.batch_done(result, self.now)
        self.collect()

    def settle(self, *writes: Write) -> None:
        """Writes are done."""
        for write in writes:
            stats = WriteStats(bytes=len(write.source), descriptors=1, seconds=0.1)
            self.pipeline.write_done(write.key, write.instance, stats=stats, now=self.now)
        self.collect()

    # ----------------------------------------------------------------------------- looking
    def of(self, kind: type[E]) -> list[E]:
        """Effects of a kind since the last `forget`."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def said(self, kind: type[B]) -> list[B]:
        """Bodies of a kind sent to peers."""
        return [send.body for send in self.of(Send) if isinstance(send.body, kind)]

    def writes(self) -> list[Write]:
        """Writes of requests, in order."""
        return [write for write in self.of(Write) if write.key]

    def told(self, rid: str) -> list[Tokens | Failed]:
        """Messages of one request."""
        return [e.message for e in self.of(Emit) if e.message.rid == rid]

    def failure(self, rid: str) -> str:
        """The kind of a request's failure; empty while it has none."""
        return next((m.kind for m in self.told(rid) if isinstance(m, Failed)), "")

    def forget(self) -> None:
        """Look only at what comes."""
        self.effects.clear()

    def initial(self) -> bool:
        """No live request; every page and row is free."""
        pages, rows = self.pools.pages.count(), self.pools.rows.count()
        free = pages.free == pages.total and rows.free == rows.total
        return free and not list(self.pipeline.live())


def row_content(room: int, generation: int, token: int) -> RowContent:
    """A metadata row."""
    return RowContent(
        room=room, generation=generation, token=token, prompt_tokens=1, cached_tokens=0,
        logprob=None, top=(),
    )  # fmt: skip


def warm_notice(writer: str) -> Notice:
    """The peer's warm-up has landed here."""
    return Notice(kind=NoticeKind.WARM, writer=writer, reader=US)


class PrefillRig(Rig):
    """Prefill, with a warm decode `PEER`."""

    pipeline: PrefillPipeline

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__(sizes or Sizes())
        self.pipeline = PrefillPipeline(
            self.sizes.settings(), self.pools, outbox=self.outbox, instance=US,
            peers=peer_table(self.outbox, self.sizes.limits, role="prefill"),
        )  # fmt: skip
        self.greet(PEER)
        self.forget()

    def greet(self, instance: str, *, pod_uid: str = "") -> None:
        """A decode says Hello; both warm-ups are written."""
        self.frame(Hello(intro=intro(instance, role="decode", pod_uid=pod_uid)), sender=instance)
        self.settle(*[w for w in self.of(Write) if w.instance == instance and w.key == 0])
        self.notice(warm_notice(instance))

    def publish(
        self, room: int, length: int, *, generation: int = 1, sender: str = PEER, first: int = 10
    ) -> Publish:
        """Decode publishes pages first, first+1, ... and row 3."""
        count = self.sizes.settings().pages_for(length)
        publish = Publish(
            room=room, generation=generation, start_page=0, row=3, prompt_tokens=length,
            digest=digest(length),
            pages=np.arange(first, first + count, dtype="<i4").tobytes(),
        )  # fmt: skip
        self.frame(publish, sender=sender)
        return publish


def computed(rig: PrefillRig) -> list[Write]:
    """Compute the prompt to its end, with every write pending; returns the writes."""
    rig.tick()
    while rig.of(Launch) and not rig.idle:
        rig.results()
        rig.tick()
    return rig.writes()


class DecodeRig(Rig):
    """Decode, with a warm prefill `PEER` behind `ADDRESS`."""

    pipeline: DecodePipeline

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__(sizes or Sizes())
        self.rows = RowMemory(self.sizes.rows)
        self.host = HostMemory(np.zeros((self.sizes.pages, 1)), self.sizes.host_pages)
        self.pipeline = DecodePipeline(
            self.sizes.settings(), self.pools, rows=self.rows, host=self.host,
            peers=peer_table(self.outbox, self.sizes.limits, role="decode"), outbox=self.outbox,
        )  # fmt: skip

    def resolve(self, instance: str = PEER, *, pod_uid: str = "", fingerprint: str = "f") -> None:
        """The bootstrap server answers."""
        contact = Contact(
            instance=instance, pod_uid=pod_uid, host=f"host-{instance[:2]}", port=8997,
            fingerprint=fingerprint,
        )  # fmt: skip
        self.pipeline.resolved(ADDRESS, contact, now=self.now)
        self.collect()

    def welcome(self, instance: str = PEER, *, pod_uid: str = "") -> None:
        """Prefill answers Hello; both warm-ups are written."""
        self.frame(Welcome(intro=intro(instance, pod_uid=pod_uid)), sender=instance)
        self.settle(*[w for w in self.of(Write) if w.instance == instance and w.key == 0])
        self.notice(warm_notice(instance))

    def reach(self, instance: str = PEER, *, pod_uid: str = "") -> None:
        """The lookup and the handshake that the first request wants."""
        self.tick()
        self.resolve(instance, pod_uid=pod_uid)
        self.welcome(instance, pod_uid=pod_uid)
        self.tick()

    def published(self, room: int) -> Publish:
        """What was last published for a room."""
        return [p for p in self.said(Publish) if p.room == room][-1]

    def chunk(self, room: int, *, number: int = 0, last: bool = True, pages: int = -1) -> None:
        """The notice of one chunk."""
        publish = self.published(room)
        count = len(publish.pages) // 4 if pages < 0 else pages
        self.notice(
            Notice(kind=NoticeKind.CHUNK, writer=PEER, reader=US, room=room, chunk=number,
                   generation=publish.generation, pages=count, last=last)
        )  # fmt: skip

    def row(self, room: int, *, token: int = 7, named: int | None = None) -> None:
        """Prefill fills the row and its notice comes; ``named`` is the room that it names."""
        publish = self.published(room)
        content = row_content(room if named is None else named, publish.generation, token)
        self.rows.write(publish.row, content)
        self.notice(
            Notice(kind=NoticeKind.ROW, writer=PEER, reader=US, room=room, last=True,
                   generation=publish.generation)
        )  # fmt: skip

    def deliver(self, room: int, *, token: int = 7) -> None:
        """The whole hand-off in one chunk."""
        self.chunk(room)
        self.row(room, token=token)
