"""The matrix: which fault hits which side while a request is in which stage of its two legs."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pdcluster_api.names import Role
from pdcluster_api.states import Stage


class Fault(StrEnum):
    """What happens to the request's leg or to the worker on one side."""

    DISCONNECT = "client disconnect"
    ABORT = "abort by rid"
    KILL = "SIGKILL"  # and nobody there until the answers are in
    RESTART = "restart on the same port"  # SIGKILL, and started again at once
    STOP = "SIGSTOP"


CLIENT = (Fault.DISCONNECT, Fault.ABORT)
ENDS_PROCESS = (Fault.KILL, Fault.RESTART)


@dataclass(frozen=True, slots=True)
class Moment:
    """Where both legs are, and what holds them there."""

    name: str
    prefill: Stage | None  # None: this leg has its answer
    decode: Stage
    gates: tuple[tuple[Role, str], ...] = ()  # none: decode's lookup is held back by the proxy


# The notice of a write that is not polled may leave all the same: decode does not look at it.
IN_FLIGHT = ((Role.PREFILL, "writes"), (Role.DECODE, "notices"))
MOMENTS = (
    Moment("bootstrapping", Stage.BOOTSTRAP, Stage.HANDSHAKE),
    Moment("prealloc", Stage.BOOTSTRAP, Stage.PREALLOC, ((Role.DECODE, "admit"),)),
    Moment("waiting", Stage.WAITING, Stage.TRANSFER, ((Role.PREFILL, "prompts"),)),
    Moment("mid-chunk", Stage.FORWARD, Stage.TRANSFER, ((Role.PREFILL, "mid"),)),
    Moment("last chunk", Stage.FORWARD, Stage.TRANSFER, ((Role.PREFILL, "last"),)),
    Moment("in flight", Stage.INFLIGHT, Stage.TRANSFER, IN_FLIGHT),
    Moment("transfer", None, Stage.TRANSFER, ((Role.DECODE, "notices"),)),
    Moment("running", None, Stage.RUNNING, ((Role.DECODE, "passes"),)),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the matrix."""

    fault: Fault
    role: Role
    moment: Moment

    def __str__(self) -> str:
        return f"{self.fault}, {self.role}, {self.moment.name}"

    @property
    def not_applicable(self) -> str:
        """Why it cannot be; empty when it can."""
        if self.role is Role.PREFILL and self.moment.prefill is None and self.fault in CLIENT:
            return "prefill has answered its leg: no client waits there, no request has the name"
        return ""


def matrix() -> Iterator[Cell]:
    """All places, those with long silences last."""
    for fault in Fault:
        for moment in MOMENTS:
            for role in (Role.PREFILL, Role.DECODE):
                yield Cell(fault, role, moment)


def pairwise(cell: Cell) -> bool:
    """Whether the cell is of the subset that has each pair of two factors.

    Each fault meets each stage once; the side alternates, or is the one that applies.
    """
    place = list(Fault).index(cell.fault) + MOMENTS.index(cell.moment)
    chosen = Role.PREFILL if place % 2 == 0 else Role.DECODE
    if Cell(cell.fault, chosen, cell.moment).not_applicable:
        chosen = Role.DECODE
    return cell.role is chosen
