"""Lives through one schedule and judges it."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from pdcluster_worker.core.errors import by_kind
from pdcluster_worker.sim.faults import Cell, FaultyWorld
from pdcluster_worker.sim.node import Node
from pdcluster_worker.sim.schedule import (
    ARRIVALS_S,
    BY_RID,
    FAULT_S_MAX,
    FAULTS_S,
    LIMITS,
    FaultKind,
    FaultPlan,
    RequestPlan,
    Schedule,
)
from pdcluster_worker.sim.story import Story
from pdcluster_worker.sim.toy import EOS, oracle
from pdcluster_worker.sim.world import Violation

QUIET_S: Final = 2 * LIMITS.orphan_ttl_s + LIMITS.queue_timeout_s + LIMITS.transfer_timeout_s
LEG_FAULTS: Final = (FaultKind.ONE_LEG, FaultKind.DECLINED, FaultKind.OTHER_PROMPT)
PROBE_S: Final = 3.0  # for one request after everything
# Waits one after the other that a request may go through, and the pass that each may have to see
# out before it is noticed.
LIMIT_S: Final = (
    LIMITS.handshake_timeout_s
    + LIMITS.bootstrap_timeout_s
    + 2 * LIMITS.queue_timeout_s
    + LIMITS.transfer_timeout_s
    + LIMITS.heartbeat_timeout_s
)


@dataclass(slots=True)
class Result:
    """What a day came to."""

    schedule: Schedule
    problem: str = ""  # the first check that failed
    hits: Counter[Cell] = field(default_factory=Counter)
    rows: Counter[tuple[str, object, object]] = field(default_factory=Counter)  # of the tables
    outcomes: Counter[str] = field(default_factory=Counter)


def run(schedule: Schedule, story: Story | None = None) -> Result:
    """Live through the day; never raises for what the day does to the pipelines."""
    result = Result(schedule)
    day = Day(schedule, story or Story())
    try:
        day.live()
    except Violation as error:
        result.problem = str(error)
    except Exception as error:  # noqa: BLE001 - a pipeline that raises is a finding
        result.problem = f"{day.world.now:.3f} s: {type(error).__name__}: {error}"
    day.world.story.end(result.problem)
    result.hits = day.world.hits
    result.outcomes = day.outcomes
    for node in day.world.by_instance.values():
        taken = node.pipeline.walker.taken  # type: ignore[attr-defined]
        result.rows.update({(node.role, *row): count for row, count in taken.items()})
    return result


class Day:
    """One schedule under way."""

    def __init__(self, schedule: Schedule, story: Story) -> None:
        self.schedule = schedule
        self.world = FaultyWorld(schedule.seed, schedule.nodes, story)
        self.outcomes: Counter[str] = Counter()
        self._requests = {request.rid: request for request in schedule.requests}
        self._came: list[tuple[Node, str, float]] = []  # where, rid, when

    def live(self) -> None:
        """Raises Violation, or whatever a pipeline raises."""
        world = self.world
        start = world.now
        legs = {f.what: f for f in self.schedule.faults if f.kind in LEG_FAULTS}
        for request in self.schedule.requests:
            self._plan(request, start, fault=legs.get(request.rid))
        for fault in self.schedule.faults:
            if fault.kind not in BY_RID or fault.what in self._requests:  # else shrunk away
                self._plan_fault(fault, start)
        world.run(max(ARRIVALS_S, FAULTS_S) + FAULT_S_MAX + 0.5)
        world.heal()
        world.run(QUIET_S)
        self._judge_answers()
        self._judge_memory()
        self._probe()

    def _plan_fault(self, fault: FaultPlan, start: float) -> None:
        def begin() -> None:
            self.world.story.fault(fault)
            if fault.kind is FaultKind.SAME_ROOM:
                self._again(fault)
            else:
                self.world.begin(fault, self._requests)

        if fault.stage:
            self.world.aim(fault, begin)
        else:
            self.world.at(start + fault.at, begin)

    # ---------------------------------------------------------------------------- requests
    def _plan(self, request: RequestPlan, start: float, *, fault: FaultPlan | None) -> None:
        """Both legs come, or what the fault makes of the one that its host does not name."""
        for role, at in (("prefill", request.at_prefill), ("decode", request.at_decode)):
            if at is None:
                continue
            if fault is None or fault.host in ("", role) or not request.prefill:
                self.world.at(start + at, lambda r=role: self._come(request, r))  # type: ignore[misc]
            else:
                self.world.at(start + at, lambda r=role: self._miss(request, r, fault))  # type: ignore[misc]

    def _miss(self, request: RequestPlan, role: str, fault: FaultPlan) -> None:
        """The other leg waits in vain, is told of a refusal, or gets another prompt than this."""
        here, there = request.prefill, request.decode
        if role == "decode":
            here, there = there, here
        self.world.hit(fault.kind, self.world.nodes[there], room=request.room)
        if fault.kind is FaultKind.DECLINED and self.world.nodes[here].alive:
            kind = "draining" if fault.share < 1 else "invalid_request_error"
            self.world.nodes[here].decline(room=request.room, prefill=request.prefill, kind=kind)

        elif fault.kind is FaultKind.OTHER_PROMPT:
            self._come(replace(request, prompt=request.prompt + 1), role)

    def _come(self, request: RequestPlan, role: str, *, rid: str = "") -> None:
        world = self.world
        node = world.nodes[request.prefill if role == "prefill" else request.decode]
        rid = rid or request.rid
        if not node.alive or rid in node.answers:
            return  # nobody takes it
        right = oracle(request.tokens(), request.max_new)
        stop = right[request.stop_after - 1 : request.stop_after] if request.stop_after else []
        ends = [index for index, token in enumerate(right) if stop and token in (*stop, EOS)]
        world.expected[rid] = right[: ends[0] + 1] if ends else right
        world.story.request(node.host, rid=rid, plan=request)
        self._came.append((node, rid, world.now))
        node.submit(
            rid, request.tokens(), room=request.room, prefill=request.prefill,
            max_new=request.max_new, stop=tuple(stop),
        )  # fmt: skip

    def _again(self, fault: FaultPlan) -> None:
        """A router that tries again, with the room of before."""
        request = self._requests[fault.what]
        for role, node in self.world.legs(request, fault.host):
            if node.alive:
                self.world.hit(FaultKind.SAME_ROOM, node, room=request.room)
                self._come(request, role, rid=f"{request.rid}0{fault.at:.3f}".replace(".", ""))

    # ------------------------------------------------------------------------------ verdict
    def _judge_answers(self) -> None:
        kinds = by_kind()
        for node in self.world.nodes.values():
            for rid in node.answers.keys() & self.world.asked_at.keys():
                self._came.append((node, rid, self.world.asked_at[rid]))
        for node, rid, came in self._came:
            answer = node.answers[rid]
            if not node.alive:
                self.outcomes["its worker died"] += 1
                continue
            if not answer.ended or answer.ended_at is None:
                self.world.violated(f"{node.host}: {rid} never ends")
            spent = answer.ended_at - came - self.world.frozen_s
            if spent > LIMIT_S:
                self.world.violated(f"{node.host}: {rid} ends after {spent:.2f} s")
            if answer.failed is not None and answer.failed.kind not in kinds:
                self.world.violated(f"{node.host}: {rid} fails with {answer.failed.kind}")
            self.outcomes[answer.finish or (answer.failed.kind if answer.failed else "?")] += 1

    def _judge_memory(self) -> None:
        for node in self.world.nodes.values():
            pages, rows = node.pools.pages.count(), node.pools.rows.count()
            excused = bool(self.world.unproven) and node.role == "decode"
            held = pages.held + rows.held + len(node.host_memory.copies) + len(node.prepared)
            quarantined = pages.quarantined + rows.quarantined
            live = [request.rid for request in node.pipeline.live()]
            if held or (quarantined and not excused) or (live and not quarantined):
                self.world.violated(f"{node.host}: not as before: {pages}, {rows}, live {live}")
            for name, entries in node.pipeline.tables().items():
                if entries and not quarantined:
                    self.world.violated(f"{node.host}: {entries} left in {name}")

    def _probe(self) -> None:
        """The next request works, between every two."""
        hosts = self.world.nodes.values()
        pairs = [(p, d) for p in hosts for d in hosts if (p.role, d.role) == ("prefill", "decode")]
        for number, (prefill, decode) in enumerate(pairs, start=1):
            if decode.pools.pages.count().quarantined or decode.pools.rows.count().quarantined:
                continue
            if prefill.sizes.odd != decode.sizes.odd:
                continue
            rid, room, prompt = f"probe{number}", 10_000 + number, [number] * 5
            self.world.expected[rid] = oracle(prompt, 3)
            for node in (prefill, decode):
                node.submit(rid, prompt, room=room, prefill=prefill.host, max_new=3)
            answers = [node.answers[rid] for node in (prefill, decode)]
            self.world.run(PROBE_S, until=lambda a=answers: all(x.ended for x in a))  # type: ignore[misc]
            for node in (prefill, decode):
                if node.answers[rid].finish is None:
                    self.world.violated(
                        f"{node.host}: the next request fails: {node.answers[rid].failed}"
                    )
