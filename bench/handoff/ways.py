"""The ways of handing pages over that are compared. A new way is one class and one line in `WAYS`.

A way says how long one hand-off took, from the sender's decision until the receiver could know. It
may bring processes of its own; those here share one `Pair`.
"""

from dataclasses import dataclass
from typing import Protocol

from bench.handoff.receiver import Receiver
from bench.handoff.shapes import Plan
from bench.handoff.side import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The sender, in this process, and its receiver in another."""

    sender: Side
    receiver: Receiver


class Way(Protocol):
    """One way, made for one pair."""

    block_first: bool  # pages land where the product puts them, so their bytes can be compared

    def measure(self, plan: Plan) -> float:
        """Hand the plan's pages over once; seconds."""
        ...
