"""A small world for the real pipelines: virtual time, a seeded network, nodes that can die."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.errors import PeerLost, TransferPeerLost, WorkerError
from pdcluster_worker.core.ports import Contact, WriteStats
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.kv.rows import RowAllocator
from pdcluster_worker.pipeline.aggregated import AggregatedPipeline
from pdcluster_worker.pipeline.base import Pipeline, PipelineSettings
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.effects import (
    Discard,
    Effect,
    Emit,
    FillRow,
    Join,
    Launch,
    Part,
    Prepare,
    Resolve,
    Send,
    Write,
)
from pdcluster_worker.pipeline.peers import PeerLimits, PeerTable
from pdcluster_worker.pipeline.prefill import PrefillPipeline
from pdcluster_worker.wire.local import Failed, Hop, Sampling, Submit, Tokens
from pdcluster_worker.wire.notice import unpack
from pdcluster_worker.wire.peer import FrameCodec, Introduction
from tests.sim.model import PAGE_TOKENS, HostMemory, RowMemory, ToyEngine

T = TypeVar("T")


@dataclass(slots=True)
class Answer:
    """What one client has received on one leg."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    failed: Failed | None = None

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.failed is not None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of one node."""

    pages: int = 64
    rows: int = 9
    chunk_tokens: int = 16
    running_max: int = 8
    reserved: int = 4
    host_pages: int = 64
    limits: LimitSpec = field(default_factory=LimitSpec)


class Node:
    """One worker: the real pipeline, and a rim made of lists."""

    def __init__(self, world: "World", role: str, host: str, sizes: Sizes) -> None:
        self.world, self.role, self.host, self.sizes = world, role, host, sizes
        self.pod_uid = f"uid-{host}"
        self.alive = True
        self.frozen_until = 0.0
        self.instance = f"{world.random.getrandbits(128):032x}"
        self.kv = np.zeros((sizes.pages, PAGE_TOKENS), np.uint64)
        self.rows = RowMemory(sizes.rows)
        self.host_memory = HostMemory(self.kv, sizes.host_pages)
        self.engine = ToyEngine(self.kv)
        self.frames: list[bytes] = []
        self.notices: list[bytes] = []
        self.lookups: list[tuple[tuple[str, int], Contact | WorkerError]] = []
        self.outcomes: list[Callable[[float], None]] = []
        self.joined: set[str] = set()
        self.prepared: set[int] = set()  # tickets of writes made ready
        self.answers: dict[str, Answer] = {}
        self.codec = FrameCodec(
            cluster="sim", token="t", instance=self.instance, frame_bytes_max=1 << 20
        )
        self.pools = Pools(PageAllocator(sizes.pages), RowAllocator(sizes.rows))
        self.pipeline = self._pipeline()

    def _pipeline(self) -> Pipeline:
        sizes = self.sizes
        outbox: list[Effect] = []
        settings = PipelineSettings(
            capacity_tokens=sizes.pages * PAGE_TOKENS,
            page_tokens=PAGE_TOKENS,
            page_bytes=8 * PAGE_TOKENS,
            row_bytes=64,
            chunk_tokens=sizes.chunk_tokens,
            running_max=sizes.running_max,
            reserved_decode_tokens=sizes.reserved,
            eos_token_ids=(0,),
            limits=sizes.limits,
        )
        if self.role == "aggregated":
            return AggregatedPipeline(settings, self.pools, host=self.host_memory, outbox=outbox)
        intro = Introduction(
            role=self.role, pod_uid=self.pod_uid, host=self.host, port=8997, fingerprint="f",
            schema="s", transport="sim", agent=self.instance, metadata=b"", regions=(),
        )  # fmt: skip
        limits = sizes.limits
        peers = PeerTable(
            instance=self.instance,
            intro=intro,
            limits=PeerLimits(
                heartbeat_interval_s=limits.heartbeat_interval_s,
                heartbeat_timeout_s=limits.heartbeat_timeout_s,
                transfer_timeout_s=limits.transfer_timeout_s,
                forget_s=limits.orphan_ttl_s,
            ),
            emit=outbox.append,
        )
        if self.role == "prefill":
            return PrefillPipeline(
                settings, self.pools, peers=peers, outbox=outbox, instance=self.instance
            )
        return DecodePipeline(
            settings, self.pools, rows=self.rows, host=self.host_memory, peers=peers, outbox=outbox
        )

    # ---------------------------------------------------------------------------- one tick
    def turn(self, now: float) -> None:
        """As `roles.loop.Loop.turn` does it."""
        pipeline = self.pipeline
        for data in self._take(self.notices):
            notice = unpack(data)
            if notice.reader == self.instance:
                pipeline.notice(notice, now)
        for frame in self._take(self.frames):
            try:
                sender, body = self.codec.decode(frame)
            except WorkerError:
                continue
            pipeline.frame(sender, body, now=now)
        for address, outcome in self._take(self.lookups):
            pipeline.resolved(address, outcome, now=now)
        for told in self._take(self.outcomes):
            told(now)
        result = self.engine.poll(now)
        if result is not None:
            pipeline.batch_done(result, now)
        pipeline.tick(now, engine_idle=self.engine.steps is None)
        while pipeline.outbox:
            for effect in pipeline.drain_outbox():
                self._do(effect, now)
        pipeline.ended.clear()
        self.pools.check()

    @staticmethod
    def _take(inbox: list[T]) -> list[T]:
        taken = list(inbox)
        inbox.clear()
        return taken

    def _do(self, effect: Effect, now: float) -> None:
        world = self.world
        match effect:
            case Emit():
                self._emit(effect.message)
            case Prepare():
                self.prepared.add(effect.write.ticket)
            case Discard():
                self.prepared.discard(effect.ticket)
            case Launch():
                self.engine.launch(effect.steps, now + world.random.uniform(0.005, 0.05))
            case FillRow():
                self.rows.write(effect.row, effect.content)
            case Write():
                self.prepared.discard(effect.ticket)
                world.write(self, effect, now=now)
            case Send():
                frame = self.codec.encode(effect.body, receiver=effect.receiver)
                world.send(effect.endpoint[0], frame, effect.body, now=now)
            case Resolve():
                world.resolve(self, effect.address, now=now)
            case Join():
                self.joined.add(effect.instance)
            case Part():
                self.joined.discard(effect.instance)

    def _emit(self, message: Tokens | Failed) -> None:
        answer = self.answers[message.rid]
        assert not answer.ended, f"{message.rid} ends twice"
        if isinstance(message, Failed):
            answer.failed = message
            return
        answer.tokens.extend(message.ids)
        answer.finish = message.finish

    # ---------------------------------------------------------------------------- the client
    def submit(
        self, rid: str, prompt: list[int], *, room: int, prefill: str, max_new: int = 8
    ) -> Answer:
        hop = Hop(host=prefill, port=8998, room=room) if self.role != "aggregated" else None
        answer = self.answers[rid] = Answer()
        message = Submit(
            rid=rid,
            input_ids=np.array(prompt, "<i4").tobytes(),
            sampling=Sampling(max_new_tokens=max_new, ignore_eos=True, logprobs=0),
            hop=hop,
        )
        self.pipeline.submit(message, self.world.now)
        return answer

    def initial(self) -> bool:
        """Everything back: no live request, no page, row or host copy held."""
        pages, rows = self.pools.pages.count(), self.pools.rows.count()
        return (
            not list(self.pipeline.live())
            and pages.free == pages.total
            and rows.free == rows.total
            and not self.host_memory.copies
            and not self.prepared
        )


class World:
    """Nodes, a clock and a network. Everything random comes from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = 1.0
        self.nodes: dict[str, Node] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.drop: Callable[[object], bool] = lambda _body: False
        self.write_delay: Callable[[Write], float] = lambda _write: self.random.uniform(1e-5, 1e-2)
        self.clobbered: list[str] = []

    def add(self, role: str, host: str, sizes: Sizes | None = None) -> Node:
        """A node, or the next process behind the same host and pod."""
        node = self.nodes[host] = Node(self, role, host, sizes or Sizes())
        return node

    def kill(self, host: str) -> None:
        self.nodes[host].alive = False

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self, seconds: float, *, step: float = 0.002) -> None:
        """Turn every node that lives, in random order, every ``step`` of virtual time."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            order = list(self.nodes.values())
            self.random.shuffle(order)
            for node in order:
                if node.alive and node.frozen_until <= self.now:
                    node.turn(self.now)

    # ---------------------------------------------------------------------------- the network
    def send(self, host: str, frame: bytes, body: object, *, now: float) -> None:
        if self.drop(body):
            return

        def deliver() -> None:
            node = self.nodes.get(host)
            if node is not None and node.alive:
                node.frames.append(frame)

        # Frames of one pair keep their order, as ZMQ's do: the delay is constant.
        self.at(now + 0.001, deliver)

    def resolve(self, asker: Node, address: tuple[str, int], *, now: float) -> None:
        def answer() -> None:
            node = self.nodes.get(address[0])
            outcome: Contact | WorkerError = PeerLost("connection refused")
            if node is not None and node.alive:
                outcome = Contact(
                    instance=node.instance, pod_uid=node.pod_uid, host=node.host, port=8997,
                    fingerprint="f",
                )  # fmt: skip
            asker.lookups.append((address, outcome))

        self.at(now + 0.003, answer)

    def write(self, source: Node, write: Write, *, now: float) -> None:
        target = next((n for n in self.nodes.values() if n.instance == write.instance), None)
        if write.instance not in source.joined or target is None or not target.alive:
            self._report(source, write, TransferPeerLost("gone"))
            return

        def complete() -> None:
            if not source.alive:
                return
            if not target.alive:
                self._report(source, write, TransferPeerLost("gone"))
                return
            if write.region == "kv":
                target.kv[write.target] = source.kv[write.source]
            elif write.key:
                target.rows.rows[int(write.target[0])] = source.rows.rows[int(write.source[0])]
            target.notices.append(write.notice.pack())
            stats = WriteStats(bytes=8 * len(write.source), descriptors=1, seconds=0.0)
            source.outcomes.append(
                lambda t: source.pipeline.write_done(write.key, write.instance, stats=stats, now=t)
            )

        self.at(now + self.write_delay(write), complete)

    @staticmethod
    def _report(source: Node, write: Write, error: WorkerError) -> None:
        pipeline = source.pipeline
        source.outcomes.append(
            lambda t: pipeline.write_failed(write.key, write.instance, error=error, now=t)
        )
        source.outcomes.append(lambda t: pipeline.write_settled(write.key, t))
