"""What happened, in order: for the reader of a failing seed. Heartbeats are left out."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pdcluster_worker.sim.network import room_of
from pdcluster_worker.sim.schedule import FaultPlan, RequestPlan
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import Alive, Body

LINES_MAX = 20_000  # the oldest go: the end of a story is what one wants to read


@dataclass(slots=True)
class Line:
    """One event."""

    at: float
    host: str
    text: str
    room: int = 0


@dataclass(slots=True)
class Story:
    """Collects lines; does nothing unless ``told``."""

    told: bool = False
    lines: list[Line] = field(default_factory=list)
    now: Callable[[], float] = lambda: 0.0  # set by the world that tells it

    def add(self, host: str, text: str, *, room: int = 0) -> None:
        """One line, now."""
        if self.told:
            self.lines.append(Line(self.now(), host, text, room))
            del self.lines[:-LINES_MAX]

    def fault(self, fault: FaultPlan) -> None:
        """A fault begins."""
        what = f" {fault.what}" if fault.what else ""
        share = f" ({fault.share:.0%})" if fault.share < 1 else ""
        stage = f" when {fault.stage}" if fault.stage else ""
        text = f"FAULT {fault.kind}{what}{share} for {fault.seconds:g} s{stage}"
        self.add(fault.host or "*", text)

    def request(self, host: str, *, rid: str, plan: RequestPlan) -> None:
        """A leg of a request comes."""
        text = f"{rid} comes: {plan.prompt} tokens, {plan.max_new} wanted, prefill {plan.prefill}"
        self.add(host, text, room=plan.room)

    def message(self, host: str, verb: str, *, what: Body | Notice) -> None:
        """A frame or a write leaves."""
        if self.told and not isinstance(what, Alive):
            room = what.room if isinstance(what, Notice) else room_of(what)
            self.add(host, f"{verb} {_brief(what)}", room=room)

    def end(self, problem: str) -> None:
        """The day is over."""
        self.add("*", f"BROKEN {problem}" if problem else "all is well")


def _brief(what: Body | Notice) -> str:
    if isinstance(what, Notice):
        last = " last" if what.last else ""
        name = what.kind.name.lower()
        return f"write {name} room={what.room} generation={what.generation} {what.chunk}{last}"
    shown = {
        name: value
        for name, value in msgspec.structs.asdict(what).items()
        if name in ("room", "generation", "kind", "quiescent")
    }
    return " ".join([type(what).__name__, *(f"{k}={v}" for k, v in shown.items())])
