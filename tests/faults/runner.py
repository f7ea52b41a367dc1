"""One cell: a request brought into its stage, the fault, and everything that must hold after."""

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pdcluster_api.names import Role
from pdcluster_api.states import Stage
from tests.faults.cells import CLIENT, ENDS_PROCESS, Cell, Fault
from tests.faults.client import Answer, Ask, Legs, abort, ask
from tests.faults.proxy import Mode
from tests.faults.workers import LIMITS, Pair, Worker

HELD_S = 0.3  # the stage goes on after the fault, so that the fault is dealt with inside it
REACH_S = 15.0  # to bring the request into its stage
SLACK_S = 1.5  # of a busy machine, on top of each limit
INITIAL_S = 20.0
POLL_S = 0.02

# Retried elsewhere, or asked for by the client: what a fault may end a request with.
CLEAN = frozenset({
    "bootstrap_timeout", "handshake_timeout", "queue_timeout", "transfer_timeout", "peer_lost",
    "peer_refused", "transfer_peer_lost", "transfer_error", "unavailable", "aborted", "client_gone",
    "draining",
})  # fmt: skip

VICTIM = ask(200, new=60, marked=True)
AHEAD = ask(90, new=600)  # runs when the fault comes
BEHIND = ask(70, new=24)  # is behind the victim in every queue
NEXT = ask(130, new=8)
ALL = (VICTIM, AHEAD, BEHIND, NEXT)

Oracle = Mapping[Ask, tuple[int, ...]]


@dataclass(slots=True)
class Outcome:
    """What a cell has shown; `problems` is empty when it passed."""

    cell: Cell
    victim: dict[str, str] = field(default_factory=dict)  # leg -> answer
    seconds: dict[str, float] = field(default_factory=dict)  # from the fault
    tick_ms: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def want(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


def limit_s(cell: Cell, *, stop_s: float) -> float:
    """From the fault to the last answer of the victim's and the neighbours' legs."""
    if cell.fault in CLIENT:
        return HELD_S + LIMITS.topology_interval_s + SLACK_S
    silence = LIMITS.heartbeat_timeout_s + 2 * LIMITS.heartbeat_interval_s
    # The neighbour behind has only just been posted: its own peer may not know of it yet.
    unknown = max(LIMITS.bootstrap_timeout_s, LIMITS.handshake_timeout_s)
    return max(silence, unknown) + SLACK_S + (stop_s if cell.fault is Fault.STOP else 0.0)


class Run:
    """The steps of one cell."""

    def __init__(self, pair: Pair, oracle: Oracle, cell: Cell, *, stop_s: float) -> None:
        self.pair, self.oracle, self.cell, self.stop_s = pair, oracle, cell, stop_s
        self.outcome = Outcome(cell)
        self.hit = pair.side(cell.role)
        self.clock = asyncio.get_running_loop().time

    async def run(self) -> Outcome:
        """All of it. Raises when the pair cannot be used any more."""
        before = [(await worker.status())["instance"] for worker in self.pair.workers]
        ahead = Legs(self.pair, AHEAD)
        await self._until({Role.DECODE: (Stage.RUNNING, 1)})
        victim = await self._enter()
        behind = Legs(self.pair, BEHIND)
        await asyncio.sleep(0.05)
        started = self.clock()
        back = asyncio.create_task(self._fault(victim))
        await asyncio.sleep(HELD_S)
        self._release()
        try:
            async with asyncio.timeout(limit_s(self.cell, stop_s=self.stop_s) + 20.0):
                answers = [await legs.answers() for legs in (victim, ahead, behind)]
            self._judge(started, *answers)
        except TimeoutError:
            self.outcome.want(False, "an answer never came")
        await back
        await self._settle(started, before)
        return self.outcome

    # ------------------------------------------------------------------------ into the stage
    async def _enter(self) -> Legs:
        moment, port = self.cell.moment, 0
        if not moment.gates:
            self.proxy, port = await self.pair.another_bootstrap()
            self.proxy.turn(Mode.BLACKHOLE)
        for role, gate in moment.gates:
            self.pair.side(role).hold(gate)
        legs = Legs(self.pair, VICTIM, port=port)
        running = 2 if moment.decode is Stage.RUNNING else 1
        wanted = {Role.DECODE: (moment.decode, running)}
        if moment.prefill is not None:
            wanted[Role.PREFILL] = (moment.prefill, 1)
        await self._until(wanted)
        if moment.prefill is None:
            await legs.tasks[Role.PREFILL]
        return legs

    async def _until(self, wanted: Mapping[Role, tuple[Stage, int]]) -> None:
        async with asyncio.timeout(REACH_S):
            for role, (stage, count) in wanted.items():
                while (await self.pair.side(role).status())["stages"].get(stage, 0) != count:
                    await asyncio.sleep(POLL_S)

    def _release(self) -> None:
        if not self.cell.moment.gates:
            self.proxy.turn(Mode.FORWARD)
        for role, gate in self.cell.moment.gates:
            self.pair.side(role).let_go(gate)

    # ----------------------------------------------------------------------------- the fault
    async def _fault(self, victim: Legs) -> None:
        """Strike; for a stop, also end it."""
        started = self.clock()
        match self.cell.fault:
            case Fault.DISCONNECT:
                victim.tasks[self.cell.role].cancel()
            case Fault.ABORT:
                found = await abort(self.hit, victim.rid)
                self.outcome.want(found == 1, f"abort found {found} requests")
            case Fault.KILL:
                await self.hit.kill()
            case Fault.RESTART:
                await self.hit.kill()
                await self.hit.start()
            case Fault.STOP:
                self.hit.send(signal.SIGSTOP)
                try:
                    await asyncio.sleep(self.stop_s)
                finally:
                    self.hit.send(signal.SIGCONT)
        if self.cell.fault in CLIENT:
            await self._acknowledged(started)

    async def _acknowledged(self, started: float) -> None:
        """Until no pages of decode wait for prefill's word; measured, not judged."""
        async with asyncio.timeout(INITIAL_S):
            while (await self.pair.decode.status())["pages"]["quarantined"]:
                await asyncio.sleep(POLL_S / 4)
        self.outcome.seconds["acknowledged"] = round(self.clock() - started, 3)

    # -------------------------------------------------------------------------- what must hold
    def _judge(
        self,
        started: float,
        victim: dict[Role, Answer],
        ahead: dict[Role, Answer],
        behind: dict[Role, Answer],
    ) -> None:
        for name, answers, asked in (
            ("victim", victim, VICTIM),
            ("ahead", ahead, AHEAD),
            ("behind", behind, BEHIND),
        ):
            for role, answer in answers.items():
                self._leg(name, role, answer, asked=asked, after_s=answer.at - started)

    def _leg(self, name: str, role: Role, answer: Answer, *, asked: Ask, after_s: float) -> None:
        leg = f"{name} on {role}"
        outcome, right = self.outcome, self.oracle[asked]
        if name == "victim":
            outcome.victim[role] = str(answer)
        outcome.seconds[leg] = round(after_s, 3)
        self._in_time(leg, answer, after_s)
        whole = right[:1] if role is Role.PREFILL else right
        outcome.want(
            answer.tokens == whole[: len(answer.tokens)], f"{leg}: wrong tokens {answer.tokens}"
        )
        if answer.status == 200 and answer.finish == "length":
            outcome.want(answer.tokens == whole, f"{leg}: {len(answer.tokens)} tokens")
        elif name == "victim" and answer.status == 200:
            outcome.want(answer.finish == "abort", f"{leg}: ended by {answer.finish}")
        else:
            self._failed(name, role, answer)

    def _in_time(self, leg: str, answer: Answer, after_s: float) -> None:
        if answer.status == 200 and answer.finish == "length":
            return  # an answer that goes on has no limit but its length
        limit = limit_s(self.cell, stop_s=self.stop_s)
        self.outcome.want(after_s <= limit, f"{leg}: {answer} after {after_s:.1f} s, not {limit} s")

    def _failed(self, name: str, role: Role, answer: Answer) -> None:
        """An error: is it one that this leg may have?"""
        leg, fault, hit = f"{name} on {role}", self.cell.fault, self.cell.role
        if answer.status == 0:
            ended = fault in ENDS_PROCESS and role is hit
            self.outcome.want(ended, f"{leg}: connection broken: {answer.message}")
            return
        said = f"{leg}: {answer}: {answer.message}"
        self.outcome.want(answer.finish in CLEAN, said)
        if name != "victim":
            # A running request needs no prefill; who is in the hand-off with a silent peer ends.
            spared = fault in CLIENT or (name == "ahead" and role is Role.DECODE)
            self.outcome.want(not spared, said)

    async def _settle(self, started: float, before: list[str]) -> None:
        outcome, hit = self.outcome, self.hit
        if self.cell.fault is Fault.KILL:
            await hit.start()
        await hit.ready()
        outcome.seconds["all serve"] = round(self.clock() - started, 3)
        for worker in self.pair.workers:
            await self._initial(worker)
        outcome.seconds["pools back"] = round(self.clock() - started, 3)
        answers = await Legs(self.pair, NEXT).answers()
        got = answers[Role.DECODE]
        outcome.seconds["next answered"] = round(self.clock() - started, 3)
        outcome.want(got.tokens == self.oracle[NEXT], f"next request: {got}: {got.message}")
        for worker, instance in zip(self.pair.workers, before, strict=True):
            status = await self._initial(worker)
            if worker is not hit or self.cell.fault not in ENDS_PROCESS:
                outcome.want(status.get("instance") == instance, f"{worker.role} has ended")
                faults = [e for e in status.get("last_errors", ()) if not e.startswith("room-")]
                outcome.want(not faults, f"{worker.role}: {faults}")
            outcome.tick_ms[worker.role] = round(float(status.get("tick_max_ms", 0.0)), 1)

    async def _initial(self, worker: Worker) -> dict[str, Any]:
        """Wait for no live request and every page and row free."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(INITIAL_S):
                while True:
                    status = await worker.status()
                    pools = (status["pages"], status["rows"])
                    if not status["stages"] and all(p["free"] == p["total"] for p in pools):
                        return status
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self.outcome.want(False, f"{worker.role} not as before: {status}")
            return status


async def oracle(pair: Pair) -> Oracle:
    """The answers of the pair itself before any fault."""
    right: dict[Ask, tuple[int, ...]] = {}
    for asked in ALL:
        answers = await Legs(pair, asked).answers()
        assert answers[Role.DECODE].finish == "length", answers
        right[asked] = answers[Role.DECODE].tokens
    return right
