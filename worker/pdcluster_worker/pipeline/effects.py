"""What the pipeline wants done. Values only; a role carries them out, in order, and reports back.

An effect that starts something long names its request by ``key`` (an integer that is never reused
in this process), and the outcome comes back as a call of the pipeline: `batch_done`, `write_done`,
`write_failed`, `resolved`.
"""

from dataclasses import dataclass

from pdcluster_worker.core.ports import PageIds, RowContent, SequenceStep
from pdcluster_worker.wire.local import Failed, Tokens
from pdcluster_worker.wire.notice import Notice
from pdcluster_worker.wire.peer import Body, Introduction

Address = tuple[str, int]  # host, port; compared exactly, never by prefix (E51)


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the frontend."""

    message: Tokens | Failed


@dataclass(frozen=True, slots=True)
class Resolve:
    """Fetch the topology of a bootstrap server; `resolved` is called with the outcome."""

    address: Address


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control frame. ``receiver`` empty: whoever listens at ``endpoint``.

    Sending never waits: a full queue drops the frame, which is counted; every exchange has a timer.
    """

    endpoint: Address
    receiver: str
    body: Body


@dataclass(frozen=True, slots=True)
class Join:
    """Teach the transport a peer; then answer it with Welcome if ``welcome`` and warm it up."""

    instance: str
    intro: Introduction
    welcome: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Make the transport forget a peer, once its handles are settled."""

    instance: str
    agent: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a forward pass; `batch_done` follows."""

    steps: tuple[SequenceStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Post a write to a peer; `write_done` or `write_failed` follows, then it is settled."""

    key: int  # 0 for a handshake's warm-up
    ticket: int = 0  # of a `Prepare` before it; 0: none
    instance: str
    region: str
    source: PageIds
    target: PageIds
    notice: Notice
    within_s: float  # from its posting


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make ready what will be posted soon, while the model computes; it may never be."""

    write: Write


@dataclass(frozen=True, slots=True)
class Discard:
    """A prepared write will not be posted."""

    ticket: int


@dataclass(frozen=True, slots=True)
class FillRow:
    """Write our own metadata row, before it is sent."""

    row: int
    content: RowContent


Effect = Emit | Resolve | Send | Join | Part | Launch | Write | FillRow | Prepare | Discard
