"""Virtual time, nodes that can die, and the checks after every step. One seed, one history."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from pdcluster_worker.core.ports import PageIds, RowContent
from pdcluster_worker.pipeline.effects import Write
from pdcluster_worker.sim.network import Fate, Network
from pdcluster_worker.sim.node import Answer, Node, Sizes
from pdcluster_worker.sim.pools import Tenancy
from pdcluster_worker.sim.toy import PAGE_TOKENS
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import Body, Publish


class Violation(AssertionError):
    """Something that must never happen has happened."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What a decode has published, for as long as nobody else has it."""

    pages: PageIds
    tenancy: Tenancy
    row: int
    row_tenancy: int


class World:
    """Nodes, a clock and a network. Everything random comes from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)  # noqa: S311 - not for secrets
        self.now = 1.0
        self.nodes: dict[str, Node] = {}  # the latest process of each host
        self.by_instance: dict[str, Node] = {}
        self.network = Network(self)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._permits: dict[tuple[str, int, int], Permit] = {}
        # For tests by hand; `faults` replaces `fate`.
        self.drop: Callable[[object], bool] = lambda _body: False
        self.write_delay: Callable[[Write], float] = lambda _write: self.random.uniform(1e-5, 1e-2)
        self.expected: dict[str, list[int]] = {}  # rid -> the fault-free answer

    def add(self, role: str, host: str, *, sizes: Sizes | None = None, pod_uid: str = "") -> Node:
        """A node, or the next process behind the same host and, unless told otherwise, pod."""
        node = Node(self, role, host, sizes=sizes or Sizes(), pod_uid=pod_uid)
        self.nodes[host] = self.by_instance[node.instance] = node
        self.network.listening(node)
        return node

    def kill(self, host: str) -> None:
        """SIGKILL."""
        self.nodes[host].alive = False

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass: from event to event, and from turn to turn of the nodes that live."""
        end = self.now + seconds
        while not until():
            due = min((n.due_at() for n in self.nodes.values() if n.alive), default=float("inf"))
            upcoming = self._events[0][0] if self._events else float("inf")
            step = max(self.now, min(due, upcoming))
            if step > end:
                self.now = end
                return
            self.now = step
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            order = [n for n in self.nodes.values() if n.alive and n.due_at() <= self.now]
            if len(order) > 1:
                self.random.shuffle(order)
            for node in order:
                node.turn(self.now)
                self.turned(node)

    # -------------------------------------------------------------------------- overridden
    def fate(self, kind: str, source: Node, *, host: str, room: int) -> Fate:
        """What becomes of a message; see `faults`."""
        del source, host, room, kind
        return Fate()

    def note(self, host: str, verb: str, *, what: Body | Notice, fate: Fate) -> None:
        """For the story."""

    def turned(self, node: Node) -> None:
        """A node has had its turn."""

    def violated(self, what: str) -> NoReturn:
        """A check has failed."""
        raise Violation(f"{self.now:.3f} s: {what}")

    # ------------------------------------------------------------------------------ checks
    def permit(self, node: Node, publish: Publish) -> None:
        """A decode publishes pages: from now on, and until they are free, they may be written."""
        pages = np.frombuffer(publish.pages, "<i4")
        key = (node.instance, publish.room, publish.generation)
        self._permits[key] = Permit(
            pages,
            node.pages.tenancy[pages].copy(),
            publish.row,
            int(node.meta.tenancy[publish.row]),
        )

    def land(self, source: Node, target: Node, *, write: Write, lease: Tenancy | None) -> None:
        """The bytes of a write arrive. They must be the writer's own, and nobody else's place."""
        if write.key == 0:
            return  # a handshake's warm-up, into the row that nobody owns
        self._check_permit(target, write)
        if write.region != "kv":
            target.rows.rows[int(write.target[0])] = self.row_of(source, target, write=write)
            return
        if lease is not None and not np.array_equal(source.pages.tenancy[write.source], lease):
            self.violated(f"{source.host}: pages were reused while a write read them: {write}")
        target.kv[write.target] = source.kv[write.source]

    def row_of(self, source: Node, target: Node, *, write: Write) -> RowContent:
        """What arrives of a metadata row."""
        del target
        return source.rows.rows[int(write.source[0])]

    def _check_permit(self, target: Node, write: Write) -> None:
        notice = write.notice
        permit = self._permits.get((target.instance, notice.room, notice.generation))
        if permit is None:
            self.violated(f"{target.host}: written without a permission: {notice}")
        elif write.region == "kv":
            published = dict(zip(permit.pages.tolist(), permit.tenancy.tolist(), strict=True))
            for page in write.target.tolist():
                if published.get(page) != target.pages.tenancy[page]:
                    self.violated(f"{target.host}: page {page} is not {notice}'s any more")
        elif (int(write.target[0]), int(target.meta.tenancy[permit.row])) != (
            permit.row, permit.row_tenancy,
        ):  # fmt: skip
            self.violated(f"{target.host}: row {write.target[0]} is not {notice}'s any more")

    def check_tables(self, node: Node) -> None:
        """What is kept per request or room has a limit."""
        limits = node.sizes.limits
        for name, entries in node.pipeline.tables().items():
            most = max(limits.queued_requests_max, limits.rooms_tracked_max)
            if entries > most:
                self.violated(f"{node.host}: {entries} in {name}, at most {most}")

    def check_tokens(self, node: Node, rid: str, *, answer: Answer) -> None:
        """Every token is the one that the fault-free run gives."""
        if rid not in self.expected:
            return
        # The last token needs no KV.
        room_left = node.sizes.pages * PAGE_TOKENS - node.prompts[rid] + 1
        right = self.expected[rid][: room_left if node.role != "prefill" else 1]
        if answer.tokens != right[: len(answer.tokens)]:
            self.violated(f"{node.host}: {rid} answers {answer.tokens}, right is {right}")
        if answer.finish is not None and len(answer.tokens) != len(right):
            self.violated(f"{node.host}: {rid} ends after {len(answer.tokens)} of {len(right)}")
