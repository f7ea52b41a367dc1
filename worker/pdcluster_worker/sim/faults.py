"""A world in which the faults of a schedule happen, and are counted by the stage they hit."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from pdcluster_worker.core.errors import Aborted, ClientGone, Draining
from pdcluster_worker.core.ports import RowContent
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim import attacks
from pdcluster_worker.sim.network import Fate
from pdcluster_worker.sim.node import Node, Sizes
from pdcluster_worker.sim.schedule import LIMITS, FaultKind, FaultPlan, NodePlan, RequestPlan
from pdcluster_worker.sim.story import Story
from pdcluster_worker.sim.toy import VOCAB
from pdcluster_worker.sim.world import World
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import Body

Cell = tuple[str, str, FaultKind]  # role, stage, what hit it
_FRAME_KINDS: Final = {FaultKind.DROP, FaultKind.TWICE, FaultKind.LATE}
_KINDS_OF: Final = {
    "notice": {FaultKind.NOTICE_LOST, FaultKind.NOTICE_TWICE, FaultKind.NOTICE_LATE},
    "write": {FaultKind.WRITE_SLOW, FaultKind.WRITE_FAILS, FaultKind.WRITE_FAILS_LATE},
    "lookup": {FaultKind.LOOKUP_SLOW, FaultKind.LOOKUP_FAILS, FaultKind.LOOKUP_LOST},
}
BYE_TRIES: Final = 40  # looks, 50 ms apart, for whether the last request has ended
_LATE_S: Final = 0.7  # at most, for whatever is late


class FaultyWorld(World):
    """`World` with faults that are under way."""

    def __init__(self, seed: int, nodes: Iterable[NodePlan], story: Story) -> None:
        super().__init__(seed)
        self.story = story
        story.now = lambda: self.now
        self._plans = {node.host: node for node in nodes}
        self._open: list[FaultPlan] = []
        self.hits: Counter[Cell] = Counter()
        self._aimed: list[tuple[FaultPlan, Callable[[], None]]] = []
        self.asked_at: dict[str, float] = {}  # requests that are in no plan
        self.frozen_s = 0.0  # of all freezes and jumps together
        self.unproven: set[str] = set()  # dead instances whose pod has another uid now
        for plan in self._plans.values():
            self.start(plan.host)

    def start(self, host: str, *, pod_uid: str = "") -> None:
        """The next process behind a host."""
        plan = self._plans[host]
        sizes = Sizes(
            pages=plan.pages, rows=plan.rows, chunk_tokens=plan.chunk_tokens,
            running_max=plan.running_max, host_pages=plan.host_pages, limits=LIMITS, reserved=2,
            odd=plan.odd, extra_slots=plan.extra_slots,
        )  # fmt: skip
        self.add(plan.role, host, sizes=sizes, pod_uid=pod_uid)

    # ------------------------------------------------------------------------------ faults
    def begin(self, fault: FaultPlan, requests: dict[str, RequestPlan]) -> None:
        """It is time for this fault."""
        match fault.kind:
            case FaultKind.KILL | FaultKind.REPLACE:
                self._kill(fault)
            case FaultKind.FREEZE:
                self._hit_all(fault)
                node = self.nodes[fault.host]
                node.frozen_until = max(node.frozen_until, self.now + fault.seconds)
                self.frozen_s += fault.seconds
            case FaultKind.JUMP:
                self._hit_all(fault)
                self.nodes[fault.host].ahead_s += fault.seconds
                self.nodes[fault.host].wake()
                self.frozen_s += fault.seconds
            case FaultKind.ENGINE:
                self._hit_all(fault)
                self.nodes[fault.host].engine.fail_next = "made up"
            case FaultKind.LEAVE | FaultKind.ABORT | FaultKind.STOP:
                self._end(fault, requests[fault.what])
            case (
                FaultKind.SAME_ROOM
                | FaultKind.ONE_LEG
                | FaultKind.DECLINED
                | FaultKind.OTHER_PROMPT
            ):
                pass  # part of how the requests come
            case FaultKind.BYE:
                self._bye(fault)
            case (
                FaultKind.GARBAGE | FaultKind.REPLAY | FaultKind.STRANGE | FaultKind.FLOOD
                | FaultKind.BAD | FaultKind.HEALTH
            ):  # fmt: skip
                self._attack(fault)
            case _:
                self._open.append(fault)
                self.at(self.now + fault.seconds, lambda: self._close(fault))

    def _close(self, fault: FaultPlan) -> None:
        if fault in self._open:
            self._open.remove(fault)

    def aim(self, fault: FaultPlan, then: Callable[[], None]) -> None:
        """Wait for the stage that this fault is meant for."""
        self._aimed.append((fault, then))

    def turned(self, node: Node) -> None:
        for aimed in [a for a in self._aimed if a[0].host in ("", node.role, node.host)]:
            fault, then = aimed
            if any(
                request.stage is not None
                and request.stage.value == fault.stage
                and fault.what in ("", request.rid)
                for request in node.pipeline.live()
            ):
                self._aimed.remove(aimed)
                then()

    def heal(self) -> None:
        """All faults are over; whoever is dead is back, in the same pod."""
        self._open.clear()
        self._aimed.clear()
        for node in list(self.nodes.values()):
            node.frozen_until = 0.0
            node.engine.fail_next = None
            if not node.alive:
                self.start(node.host, pod_uid=node.pod_uid)

    def _kill(self, fault: FaultPlan) -> None:
        node = self.nodes[fault.host]
        if not node.alive:
            return
        self._hit_all(fault)
        self.kill(fault.host)
        uid = node.pod_uid
        if fault.kind is FaultKind.REPLACE:
            uid = f"{uid}+"
            self.unproven.add(node.instance)

        def restart() -> None:
            if self.nodes[fault.host] is node:
                self.start(fault.host, pod_uid=uid)

        self.at(self.now + fault.seconds, restart)

    def _end(self, fault: FaultPlan, request: RequestPlan) -> None:
        kind = ClientGone.kind if fault.kind is FaultKind.LEAVE else Aborted.kind
        for _, node in self.legs(request, fault.host):
            if node.alive and request.rid in node.answers:
                self.hit(fault.kind, node, room=request.room, rid=request.rid)
                node.abort(request.rid, kind=kind, finished=fault.kind is FaultKind.STOP)

    def legs(self, request: RequestPlan, only: str) -> list[tuple[str, Node]]:
        """The nodes of a request's legs, or ``only`` of the one with this role."""
        if not request.prefill:
            return [("decode", self.nodes[request.decode])]
        legs = (("prefill", request.prefill), ("decode", request.decode))
        return [(role, self.nodes[host]) for role, host in legs if only in ("", role)]

    def _bye(self, fault: FaultPlan) -> None:
        """As SIGTERM does it: nobody new, the live ones end, then a farewell."""
        node = self.nodes[fault.host]
        if not node.alive:
            return
        self._hit_all(fault)
        for request in list(node.pipeline.live()):
            node.abort(request.rid, kind=Draining.kind)

        def leave(left: int) -> None:
            if not node.alive:
                return
            if list(node.pipeline.live()) and left:
                self.at(self.now + 0.05, lambda: leave(left - 1))
                return
            if not list(node.pipeline.live()) and node.frozen_until <= self.now:
                node.farewell()
            self._kill(fault)

        leave(BYE_TRIES)

    def _attack(self, fault: FaultPlan) -> None:
        node = self.nodes[fault.host]
        if not node.alive:
            return
        self._hit_all(fault)
        recent = list(self.network.recent[node.host])
        peers = [n for n in self.nodes.values() if n.role != node.role and n.alive]
        match fault.kind:
            case FaultKind.GARBAGE:
                attacks.garbage(node, self.random, frames=recent)
            case FaultKind.REPLAY:
                attacks.replay(node, self.random, frames=recent)
            case FaultKind.STRANGE:
                attacks.strange(node, self.random, peers=peers)
            case FaultKind.FLOOD:
                attacks.flood(node, self._name)
            case FaultKind.BAD:
                attacks.bad_requests(node, self._name)
            case _:
                node.ask_health(self._name())

    def _name(self) -> str:
        """Of a request that is in no plan; it must end like any other."""
        rid = f"extra{len(self.asked_at)}"
        self.asked_at[rid] = self.now
        return rid

    # ------------------------------------------------------------------------------- fates
    def fate(self, kind: str, source: Node, *, host: str, room: int) -> Fate:
        for fault in self._open:
            if self._concerns(fault, kind, source, host) and self.random.random() < fault.share:
                self._hit_message(fault, source, host, room)
                return self._fate_of(fault.kind)
        return Fate()

    @staticmethod
    def _concerns(fault: FaultPlan, kind: str, source: Node, host: str) -> bool:
        if fault.host not in ("", source.host, host):
            return False
        if kind in _KINDS_OF:
            return fault.kind in _KINDS_OF[kind]
        return fault.kind in _FRAME_KINDS and fault.what in ("any", kind)

    def _fate_of(self, kind: FaultKind) -> Fate:
        late = self.random.uniform(0.0, _LATE_S)
        match kind:
            case FaultKind.DROP | FaultKind.NOTICE_LOST | FaultKind.LOOKUP_LOST:
                return Fate(delays=())
            case FaultKind.TWICE | FaultKind.NOTICE_TWICE:
                return Fate(delays=(0.0, late))
            case FaultKind.LATE | FaultKind.NOTICE_LATE | FaultKind.LOOKUP_SLOW:
                return Fate(delays=(late,))
            case FaultKind.WRITE_SLOW:
                return Fate(delays=(self.random.choice((late, 2 * LIMITS.transfer_timeout_s)),))
            case FaultKind.WRITE_FAILS_LATE:
                return Fate(delays=(late + 0.05,), fails_after=0.01)
            case _:  # writes and lookups that fail
                return Fate(delays=(), fails_after=0.01)

    def row_of(self, source: Node, target: Node, *, write: Write) -> RowContent:
        content = super().row_of(source, target, write=write)
        for fault in self._open:
            if fault.kind is FaultKind.ROW and fault.host in (source.host, target.host):
                self._hit_message(fault, source, target.host, write.notice.room)
                # Of another request: its token would be a wrong one here.
                return replace(content, room=content.room + 1, token=(content.token + 1) % VOCAB)
        return content

    def note(self, host: str, verb: str, *, what: Body | Notice, fate: Fate) -> None:
        if self.story.told:
            self.story.message(host, verb + _shown(fate), what=what)

    # ------------------------------------------------------------------------------ counts
    def hit(self, kind: FaultKind, node: Node, *, room: int, rid: str = "") -> None:
        """A fault meets a request in a stage."""
        self.hits[node.role, node.stage_of(room=room, rid=rid), kind] += 1

    def _hit_all(self, fault: FaultPlan) -> None:
        node = self.nodes[fault.host]
        for request in node.pipeline.live():
            if request.stage is not None:
                self.hits[node.role, request.stage.value, fault.kind] += 1

    def _hit_message(self, fault: FaultPlan, source: Node, host: str, room: int) -> None:
        for node in (source, self.nodes.get(host)):
            if node is not None and room:
                self.hit(fault.kind, node, room=room)
            elif node is not None and node is source:
                for stage in node.pipeline.stages():
                    self.hits[node.role, stage.value, fault.kind] += 1


def _shown(fate: Fate) -> str:
    """How the fate of a message reads; nothing when it is the usual one."""
    if fate == Fate():
        return ""
    fails = "" if fate.fails_after is None else f"fails after {fate.fails_after:g} s, "
    arrives = ", ".join(f"{delay:.3f} s late" for delay in fate.delays) or "lost"
    return f" [{fails}{arrives}]"
