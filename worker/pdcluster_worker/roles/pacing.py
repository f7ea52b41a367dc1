"""How long the loop may sleep between two ticks. A pure function, so that it can be argued about.

A hand-off's latency is made of polls: prefill's write is announced when prefill polls it, decode
sees it when decode polls. But a loop that never sleeps takes the core from the model (nixl-facts
1d), so the tight modes are bounded in time and give way to a millisecond.
"""

from dataclasses import dataclass

SPIN_S = 0.002  # after a write was posted: do not sleep at all
FOLLOW_S = 0.0003  # after a notice: the row follows its last chunk at once
NAP_S = 0.00004  # while a hand-off may end any moment
NAP_WINDOW_S = 0.25  # since the last sign of that hand-off
STEP_S = 0.001  # the model computes, or a hand-off takes long
IDLE_S = 0.02  # nothing to do; sockets and the engine wake the loop at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the loop knows when it could sleep."""

    writing: bool  # writes of ours are not settled
    awaiting: bool  # a peer may complete a write or a handshake any moment
    computing: bool
    quiet_s: float  # since the last post, notice or handshake step


def pause_s(now: Situation) -> float:
    """Seconds to sleep at most. Below `STEP_S` the sleep is not interruptible."""
    if now.writing and now.quiet_s < SPIN_S:
        return 0.0
    if now.writing or now.awaiting:
        if now.quiet_s < FOLLOW_S:
            return 0.0
        if now.computing or now.quiet_s > NAP_WINDOW_S:
            return STEP_S
        return NAP_S
    return STEP_S if now.computing else IDLE_S
