"""Lives through one schedule and judges it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pdcluster_worker.core.errors import by_kind
from pdcluster_worker.sim.faults import Cell, FaultyWorld
from pdcluster_worker.sim.node import Node
from pdcluster_worker.sim.schedule import (
    ARRIVALS_S,
    FAULT_S_MAX,
    FAULTS_S,
    LIMITS,
    FaultKind,
    FaultPlan,
    RequestPlan,
    Schedule,
)
from pdcluster_worker.sim.story import Story
from pdcluster_worker.sim.world import Violation

QUIET_S: Final = 2 * LIMITS.orphan_ttl_s + LIMITS.queue_timeout_s + LIMITS.transfer_timeout_s
BY_RID: Final = {FaultKind.LEAVE, FaultKind.ABORT, FaultKind.SAME_ROOM, FaultKind.ONE_LEG}
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
        one_leg = (f for f in self.schedule.faults if f.kind is FaultKind.ONE_LEG)
        legless = {fault.what: fault.host for fault in one_leg}
        for request in self.schedule.requests:
            self._plan(request, start, only=legless.get(request.rid))
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
            request = self._requests.get(fault.what)
            self.world.aim(fault, room=request.room if request else 0, then=begin)
        else:
            self.world.at(start + fault.at, begin)

    # ---------------------------------------------------------------------------- requests
    def _plan(self, request: RequestPlan, start: float, *, only: str | None) -> None:
        for role, at in (("prefill", request.at_prefill), ("decode", request.at_decode)):
            if at is None:
                continue
            what = self._come if only in (None, "", role) else self._never_come
            self.world.at(start + at, lambda w=what, r=role: w(request, r))  # type: ignore[misc]

    def _never_come(self, request: RequestPlan, role: str) -> None:
        """The other leg waits in vain."""
        host = request.decode if role == "prefill" else request.prefill
        self.world.hit(FaultKind.ONE_LEG, self.world.nodes[host], room=request.room)

    def _come(self, request: RequestPlan, role: str, *, rid: str = "") -> None:
        world = self.world
        node = world.nodes[request.prefill if role == "prefill" else request.decode]
        rid = rid or request.rid
        if not node.alive or rid in node.answers:
            return  # nobody takes it
        world.expected[rid] = (request.tokens(), request.max_new)
        world.story.request(node.host, rid=rid, plan=request)
        self._came.append((node, rid, world.now))
        node.submit(
            rid, request.tokens(), room=request.room, prefill=request.prefill,
            max_new=request.max_new,
        )  # fmt: skip

    def _again(self, fault: FaultPlan) -> None:
        """A router that tries again, with the room of before."""
        request = self._requests[fault.what]
        for role, host in (("prefill", request.prefill), ("decode", request.decode)):
            node = self.world.nodes[host]
            if fault.host in ("", role) and node.alive:
                self.world.hit(FaultKind.SAME_ROOM, node, room=request.room)
                self._come(request, role, rid=f"{request.rid}0{fault.at:.3f}".replace(".", ""))

    # ------------------------------------------------------------------------------ verdict
    def _judge_answers(self) -> None:
        kinds = by_kind()
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
            rid, room, prompt = f"probe{number}", 10_000 + number, [number] * 5
            self.world.expected[rid] = (prompt, 3)
            for node in (prefill, decode):
                node.submit(rid, prompt, room=room, prefill=prefill.host, max_new=3)
            answers = [node.answers[rid] for node in (prefill, decode)]
            self.world.run(PROBE_S, until=lambda a=answers: all(x.ended for x in a))  # type: ignore[misc]
            for node in (prefill, decode):
                if node.answers[rid].finish is None:
                    self.world.violated(
                        f"{node.host}: the next request fails: {node.answers[rid].failed}"
                    )
