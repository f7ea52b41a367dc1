"""One simulated worker: the real pipeline, and a rim made of lists."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.core.errors import WorkerError
from pdcluster_worker.core.ports import Contact, PageIds
from pdcluster_worker.kv.lease import Pools
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
from pdcluster_worker.sim.pools import Tenancy, WatchedPages, WatchedRows
from pdcluster_worker.sim.toy import EOS, PAGE_TOKENS, HostMemory, RowMemory, ToyEngine
from pdcluster_worker.wire.local import (
    FAKE_HOST,
    Abort,
    Decline,
    Failed,
    Hop,
    Sampling,
    Submit,
    Tokens,
)
from pdcluster_worker.wire.notice import unpack
from pdcluster_worker.wire.peer import FrameCodec, Introduction, Publish

if TYPE_CHECKING:
    from pdcluster_worker.sim.world import World

T = TypeVar("T")

IDLE_S = 0.1  # between turns of a node to which nothing happens
BUSY_S = 0.002  # and after one in which something did


@dataclass(slots=True)
class Answer:
    """What one client has received on one leg."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    failed: Failed | None = None
    ended_at: float | None = None
    left: bool = False  # its frontend listens no more: what is on the way is dropped there

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.failed is not None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of one node, and what does not fit the others: its fingerprint, its schema, or nothing."""

    odd: str = ""

    pages: int = 64
    rows: int = 9
    chunk_tokens: int = 16
    running_max: int = 8
    extra_slots: int = 16
    reserved: int = 4
    host_pages: int = 64
    limits: LimitSpec = field(default_factory=LimitSpec)


class Node:
    """One process of one worker."""

    def __init__(
        self, world: "World", role: str, host: str, *, sizes: Sizes, pod_uid: str = ""
    ) -> None:
        self.world, self.role, self.host, self.sizes = world, role, host, sizes
        self.fingerprint = "odd" if sizes.odd == "fingerprint" else "usual"
        self.pod_uid = pod_uid or f"uid-{host}"
        self.alive = True
        self.frozen_until = 0.0
        self.turn_at = world.now
        self.ahead_s = 0.0  # of its clock, after a jump
        self.instance = f"{world.random.getrandbits(128):032x}"
        self.kv = np.zeros((sizes.pages, PAGE_TOKENS), np.uint64)
        self.rows = RowMemory(sizes.rows)
        self.host_memory = HostMemory(self.kv, sizes.host_pages)
        self.engine = ToyEngine(self.kv)
        self.frames: list[bytes] = []
        self.notices: list[bytes] = []
        self.lookups: list[tuple[tuple[str, int], Contact | WorkerError]] = []
        self.outcomes: list[Callable[[float], None]] = []
        self._passing: list[tuple[PageIds, Tenancy]] = []  # of the pass that runs
        self.joined: set[str] = set()
        self.prepared: set[int] = set()  # tickets of writes made ready
        self.answers: dict[str, Answer] = {}
        self.prompts: dict[str, int] = {}  # tokens
        self.codec = FrameCodec(
            cluster="sim", token="", instance=self.instance, frame_bytes_max=1 << 20
        )
        self.pages, self.meta = WatchedPages(sizes.pages), WatchedRows(sizes.rows)
        self.pools = Pools(self.pages, self.meta)
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
            extra_slots=sizes.extra_slots,
            reserved_decode_tokens=sizes.reserved,
            eos_token_ids=(EOS,),
            limits=sizes.limits,
        )
        if self.role == "aggregated":
            return AggregatedPipeline(settings, self.pools, host=self.host_memory, outbox=outbox)
        peers = self._peers(outbox)
        if self.role == "prefill":
            return PrefillPipeline(
                settings, self.pools, peers=peers, outbox=outbox, instance=self.instance
            )
        return DecodePipeline(
            settings, self.pools, rows=self.rows, host=self.host_memory, peers=peers, outbox=outbox
        )

    def _peers(self, outbox: list[Effect]) -> PeerTable:
        intro = Introduction(
            role=self.role, pod_uid=self.pod_uid, host=self.host, port=8997,
            fingerprint=self.fingerprint, schema="odd" if self.sizes.odd == "schema" else "usual",
            transport="sim", agent=self.instance, metadata=b"", regions=(),
        )  # fmt: skip
        limits = self.sizes.limits
        return PeerTable(
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

    # ---------------------------------------------------------------------------- one tick
    def due_at(self) -> float:
        """When it turns next; earlier when something comes in."""
        return max(self.turn_at, self.frozen_until)

    def wake(self) -> None:
        """Something has come in."""
        self.turn_at = min(self.turn_at, self.world.now)

    def turn(self, at: float) -> None:
        """As `roles.loop.Loop.turn` does it."""
        pipeline, now = self.pipeline, at + self.ahead_s
        busy = bool(self.notices or self.frames or self.lookups or self.outcomes)
        self._hear(now)
        result = self.engine.poll(at)
        if result is not None:
            self._check_pass()
            pipeline.pass_tokens(result)
            pipeline.outcomes(result)
            pipeline.batch_done(result, now)
            pipeline.prober.done(result)
        idle = self.engine.steps is None
        pipeline.tick(now, engine_idle=idle)
        pipeline.prober.tick(engine_idle=idle)
        busy = busy or bool(pipeline.outbox) or result is not None
        while pipeline.outbox:
            for effect in pipeline.drain_outbox():
                self._do(effect, at)
        pipeline.ended.clear()
        if busy:
            pipeline.check_idle()
            self.world.check_tables(self)
            pipeline.waiting_for_peer()
            pipeline.peer_states()
        self.turn_at = at + (BUSY_S if busy else IDLE_S)
        if self.engine.steps is not None:
            self.turn_at = min(self.turn_at, max(at + 1e-6, self.engine.done_at))

    def _hear(self, now: float) -> None:
        """What has come in."""
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
                steps = effect.steps
                self._passing = [(s.pages, self.pages.tenancy[s.pages].copy()) for s in steps]
                self.engine.launch(effect.steps, now + world.random.uniform(0.005, 0.05))
            case FillRow():
                self.rows.write(effect.row, effect.content)
            case Write():
                self.prepared.discard(effect.ticket)
                world.network.write(self, effect, now=now)
            case Send():
                if isinstance(effect.body, Publish):
                    world.permit(self, effect.body)
                frame = self.codec.encode(effect.body, receiver=effect.receiver)
                world.network.send(self, effect.endpoint[0], frame=frame, body=effect.body)
            case Resolve():
                world.network.resolve(self, effect.address)
            case Join():
                self.joined.add(effect.instance)
            case Part():
                self.joined.discard(effect.instance)

    def _check_pass(self) -> None:
        """The pages of a pass that runs are nobody else's, and not free either."""
        for pages, tenancy in self._passing:
            if not np.array_equal(self.pages.tenancy[pages], tenancy):
                self.world.violated(f"{self.host}: pages {pages} were released under a pass")
        self._passing = []

    def _emit(self, message: Tokens | Failed) -> None:
        answer = self.answers[message.rid]
        if answer.left:
            return
        if answer.ended:
            self.world.violated(f"{self.host}: {message.rid} ends twice")
        if isinstance(message, Failed):
            answer.failed = message
        else:
            answer.tokens.extend(message.ids)
            answer.finish = message.finish
            self.world.check_tokens(self, message.rid, answer=answer)
        if isinstance(message, Failed) or message.finish is not None:
            answer.ended_at = self.world.now

    # ---------------------------------------------------------------------------- the client
    def submit(
        self,
        rid: str,
        prompt: list[int],
        *,
        room: int,
        prefill: str,
        max_new: int = 8,
        stop: tuple[int, ...] = (),
    ) -> Answer:
        """A request comes; ``stop`` are token ids that end it."""
        hop = Hop(host=prefill, port=8998, room=room) if self.role != "aggregated" else None
        self.prompts[rid] = len(prompt)
        message = Submit(
            rid=rid,
            input_ids=np.array(prompt, "<i4").tobytes(),
            sampling=Sampling(
                max_new_tokens=max_new,
                ignore_eos=not stop,
                stop_token_ids=stop,
                logprobs=0,
                input_logprobs_from=0 if room % 3 == 0 else None,
            ),
            hop=hop,
        )
        return self.take(message)

    def ask_health(self, rid: str) -> None:
        """A probe: one token, without a peer."""
        hop = Hop(host=FAKE_HOST, port=1, room=1)
        self.take(Submit(rid=rid, input_ids=b"\0\0\0\0", sampling=Sampling(), hop=hop))

    def take(self, message: Submit) -> Answer:
        """Whatever the frontend submits."""
        answer = self.answers[message.rid] = Answer()
        self.pipeline.submit(message, self.world.now + self.ahead_s)
        self.wake()
        return answer

    def decline(self, *, room: int, prefill: str, kind: str) -> None:
        """The frontend refuses a request that never becomes one here."""
        hop = Hop(host=prefill, port=8998, room=room)
        self.pipeline.decline(Decline(hop=hop, kind=kind, message="told to"), self.world.now)
        self.wake()

    def abort(self, rid: str, *, kind: str, finished: bool = False) -> None:
        """The frontend ends a request; ``finished``: it has seen a stop string."""
        answer = self.answers.get(rid)
        if finished and answer is not None and not answer.ended:
            answer.finish, answer.ended_at, answer.left = "stop", self.world.now, True
        message = Abort(rid=rid, reason="told to", kind=kind, finished=finished)
        self.pipeline.abort(message, self.world.now + self.ahead_s)
        self.wake()

    def farewell(self) -> None:
        """What is said before the process ends in order."""
        for effect in self.pipeline.farewell():
            self._do(effect, self.world.now)

    def stage_of(self, *, room: int, rid: str = "") -> str:
        """Of the live request with this room, or of this name where there are no rooms; "-"."""
        for request in self.pipeline.live():
            mine = request.room == room if request.room else request.rid == rid
            if mine and request.stage is not None:
                return request.stage.value
        return "-"

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
