"""A bad day as data: which workers, which requests, which faults, when. All from one seed.

A schedule is plain frozen data, so that it can be shrunk, printed, and lived through again.
"""

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pdcluster_api.launch import LimitSpec
from pdcluster_worker.pipeline import aggregated, decode_table, prefill_table
from pdcluster_worker.pipeline.events import Event

REQUESTS_MIN: Final = 8
FAULTS_MIN: Final = 2
ARRIVALS_S: Final = 1.5  # requests come within this time
FAULTS_S: Final = 2.0  # and faults begin within this
ODD: Final = 0.1  # share of days on which one worker does not fit the others
ALONE: Final = 0.35  # share of days with a worker that does both
REUSE: Final = 0.2  # share of requests in the room of the one before
CROWDED: Final = 0.25  # share of days on which one decode has too little memory
FAULT_S_MAX: Final = 2.5  # none lasts longer
# Short limits, so that a day is short; their order is the product's.
LIMITS: Final = LimitSpec(
    bootstrap_timeout_s=2.5,
    handshake_timeout_s=1.0,
    queue_timeout_s=4.0,
    transfer_timeout_s=2.0,
    orphan_ttl_s=3.0,
    heartbeat_interval_s=0.25,
    heartbeat_timeout_s=0.8,
    topology_interval_s=0.1,
    http_timeout_s=0.5,
    queued_requests_max=64,
    rooms_tracked_max=64,
)
FRAMES: Final = (
    "Hello", "Welcome", "Rejoin", "Publish", "Abort", "AbortAck", "Refused", "Delivered", "Alive",
)  # fmt: skip


class FaultKind(StrEnum):
    """What can go wrong."""

    DROP = "frame lost"
    TWICE = "frame twice"
    LATE = "frame late"
    NOTICE_LOST = "notice lost"
    NOTICE_TWICE = "notice twice"
    NOTICE_LATE = "notice late"
    WRITE_SLOW = "write slow"
    WRITE_FAILS = "write fails"
    WRITE_FAILS_LATE = "write fails, lands later"
    LOOKUP_SLOW = "bootstrap slow"
    LOOKUP_FAILS = "bootstrap fails"
    LOOKUP_LOST = "bootstrap silent"
    KILL = "killed, restarted"
    REPLACE = "killed, pod replaced"
    FREEZE = "stopped for a while"
    JUMP = "clock jumps"
    ENGINE = "forward pass fails"
    LEAVE = "client leaves"
    ABORT = "abort asked for"
    SAME_ROOM = "room used twice"
    ONE_LEG = "one leg only"
    DECLINED = "one leg declined"
    STOP = "stop string seen"
    BYE = "ended in order, restarted"
    GARBAGE = "garbage received"
    REPLAY = "old frames received"
    STRANGE = "strange frames received"
    FLOOD = "flooded"
    BAD = "bad requests"
    ROW = "metadata row corrupt"
    OTHER_PROMPT = "legs disagree"
    HEALTH = "health asked"


AIMED: Final = (
    FaultKind.KILL, FaultKind.REPLACE, FaultKind.FREEZE, FaultKind.JUMP, FaultKind.ENGINE,
    FaultKind.LEAVE, FaultKind.ABORT, FaultKind.SAME_ROOM, FaultKind.STOP, FaultKind.BYE,
    FaultKind.GARBAGE, FaultKind.REPLAY, FaultKind.HEALTH, FaultKind.STRANGE, FaultKind.FLOOD,
    FaultKind.BAD,
)  # fmt: skip
# Those that concern one request, on the legs that ``host`` names.
BY_RID: Final = frozenset((
    FaultKind.LEAVE, FaultKind.ABORT, FaultKind.SAME_ROOM, FaultKind.ONE_LEG, FaultKind.DECLINED,
    FaultKind.STOP, FaultKind.OTHER_PROMPT,
))  # fmt: skip
AIMED_SHARE: Final = 0.6
STAGES_OF: Final = {
    "prefill": tuple(sorted({s.value for s, _ in prefill_table.TABLE if s is not None})),
    "decode": tuple(sorted({s.value for s, _ in decode_table.TABLE if s is not None})),
    "aggregated": tuple(
        sorted(
            {s.value for s, event in aggregated.TABLE if s is not None and event is Event.FAILED}
        )
    ),
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One worker; see `node.Sizes`."""

    host: str
    role: str
    pages: int
    rows: int
    chunk_tokens: int
    running_max: int
    host_pages: int
    extra_slots: int
    odd: str = ""  # what does not fit the others: "fingerprint", "schema" or nothing


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request: seconds at which each leg comes, None where a leg never does."""

    rid: str
    room: int
    prompt: int  # tokens; they follow from the rid
    max_new: int
    prefill: str
    decode: str
    at_prefill: float | None
    at_decode: float | None
    stop_after: int = 0  # tokens until one comes that the request calls its stop token; 0: none

    def tokens(self) -> list[int]:
        """The prompt, its own for every request."""
        number = int(self.rid[1:])
        return [(number * 31 + position * 7) % 199 + 1 for position in range(self.prompt)]


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault. ``host`` is whom it hits; empty: everybody."""

    kind: FaultKind
    at: float
    seconds: float
    host: str = ""
    what: str = ""  # a frame's name or a rid
    share: float = 1.0  # of the messages
    # Not before a request is in this stage on ``host``: the one with rid ``what``, or any. Some
    # stages are so short that no fault would meet them by chance.
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One bad day."""

    seed: int
    nodes: tuple[NodePlan, ...]
    requests: tuple[RequestPlan, ...]
    faults: tuple[FaultPlan, ...]


def make_schedule(seed: int) -> Schedule:
    """The day of a seed."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    crowded = dice.random() < CROWDED
    nodes = [
        _crowd(_node(dice, role, number), crowded=crowded)
        for role in ("prefill", "decode")
        for number in range(dice.choice((1, 1, 2, 2, 3, 4)))
    ]
    if dice.random() < ODD:
        index = dice.randrange(len(nodes))
        nodes[index] = replace(nodes[index], odd=dice.choice(("fingerprint", "schema")))
    requests = _requests(dice, nodes, crowded=crowded)
    if dice.random() < ALONE:
        nodes.append(_crowd(_node(dice, "aggregated", 0), crowded=crowded))
        requests += _requests_alone(dice, nodes[-1].host, first=len(requests) + 1)
    faults = [_fault(dice, nodes, requests) for _ in range(FAULTS_MIN + dice.randrange(4))]
    return Schedule(
        seed, tuple(nodes), tuple(requests), tuple(sorted(faults, key=lambda fault: fault.at))
    )


def _node(dice: random.Random, role: str, number: int) -> NodePlan:
    return NodePlan(
        host=f"{role[0]}{number}",
        role=role,
        pages=dice.choice((12, 16, 24, 40, 64)),
        rows=dice.choice((2, 3, 4, 9)),
        chunk_tokens=dice.choice((4, 8, 10, 16)),
        running_max=dice.choice((1, 2, 4, 8)),
        host_pages=dice.choice((0, 8, 64)),
        extra_slots=dice.choice((0, 1, 16)),
    )


def _crowd(node: NodePlan, *, crowded: bool) -> NodePlan:
    """On a crowded day every decode admits many and runs out of pages."""
    if not crowded or node.role == "prefill":
        return node
    return replace(node, pages=16, rows=9, running_max=8, host_pages=max(node.host_pages, 8))


def _requests_alone(dice: random.Random, host: str, *, first: int) -> list[RequestPlan]:
    """For a worker that does both: it needs nobody."""
    numbers = range(first, first + dice.choice((4, 12)))
    requests = [_request(dice, number, [""], [host]) for number in numbers]
    return [replace(request, at_prefill=None) for request in requests]


def _requests(dice: random.Random, nodes: list[NodePlan], *, crowded: bool) -> list[RequestPlan]:
    prefills = [node.host for node in nodes if node.role == "prefill"]
    decodes = [node.host for node in nodes if node.role == "decode"]
    count = REQUESTS_MIN + dice.randrange(9)
    requests: list[RequestPlan] = []
    for number in range(1, count + 1):
        requests.append(_request(dice, number, prefills, decodes))
        if len(requests) > 1 and dice.random() < REUSE:
            requests[-1] = _again(requests[-1], requests[-2], dice.choice((0.05, 0.2, 0.5)))
    if not crowded:
        return requests
    return [replace(r, prompt=min(r.prompt, 8), max_new=30, decode=decodes[0]) for r in requests]


def _again(request: RequestPlan, former: RequestPlan, later_s: float) -> RequestPlan:
    """``request`` in the room of a former one, which has hardly ended: a router tried again."""
    assert former.at_prefill is not None
    assert former.at_decode is not None
    return replace(
        request, room=former.room, prefill=former.prefill, decode=former.decode,
        at_prefill=former.at_prefill + later_s, at_decode=former.at_decode + later_s,
    )  # fmt: skip


def _request(
    dice: random.Random, number: int, prefills: list[str], decodes: list[str]
) -> RequestPlan:
    at = dice.uniform(0.0, ARRIVALS_S)
    apart = dice.choice((0.0, 0.001, 0.01, 0.3))  # between the legs
    first, second = (at, at + apart) if dice.random() < 0.5 else (at + apart, at)
    return RequestPlan(
        rid=f"r{number}",
        room=number,
        prompt=dice.choice((1, 3, 4, 5, 8, 15, 16, 17, 33, 40, 90)),
        max_new=dice.choice((1, 1, 2, 5, 12, 30)),
        prefill=dice.choice(prefills),
        decode=dice.choice(decodes),
        at_prefill=first,
        at_decode=second,
        stop_after=dice.choice((0, 0, 0, 1, 3)),
    )


def _fault(dice: random.Random, nodes: list[NodePlan], requests: list[RequestPlan]) -> FaultPlan:
    kind = dice.choice(tuple(FaultKind))
    host = dice.choice(nodes).host
    what = ""
    if kind in (FaultKind.DROP, FaultKind.TWICE, FaultKind.LATE):
        what, host = dice.choice((*FRAMES, *FRAMES, "any")), dice.choice((host, ""))
    elif kind in BY_RID:
        what, host = dice.choice(requests).rid, dice.choice(("prefill", "decode", ""))
    if kind is FaultKind.STOP:
        host = "decode"  # a prefill's answer is over with its first token
    stage = ""
    if kind in AIMED and dice.random() < AIMED_SHARE:
        stage = dice.choice(STAGES_OF[_role_of(host, nodes)])
    return FaultPlan(
        kind=kind,
        at=dice.uniform(0.0, FAULTS_S) if not stage else 0.0,
        seconds=dice.choice((0.05, 0.3, 1.0, FAULT_S_MAX)),
        host=host,
        what=what,
        share=dice.choice((0.3, 1.0)),
        stage=stage,
    )


def _role_of(host: str, nodes: list[NodePlan]) -> str:
    """Of a host; a request's fault names a role, or hits both, which starts at decode."""
    return next((node.role for node in nodes if node.host == host), host or "decode")
