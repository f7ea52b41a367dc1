"""Why a pod is not ready, from its containers' states, in words. Pure.

What a container runtime knows for certain comes first: how the last run ended, and whether a probe
ended it. What the run itself wrote as an error follows. What a container said last about anything
else is no reason, and is not here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pdcluster_operator.local.kubelet.last_words import exit_words

Status = Mapping[str, Any]


def why_not_ready(statuses: Iterable[Status]) -> str:
    """Return what keeps the first unready container from being ready; nothing when it starts for
    the first time and there is no news of it yet."""
    return next((text for item in statuses if not item["ready"] and (text := _why(item))), "")


def last_end(statuses: Iterable[Status]) -> str:
    """Return how a run of the first unready container ended; nothing when none did."""
    for item in statuses:
        if not item["ready"] and (ended := _ended(item)):
            return f"{item['name']}: {end_words(ended)}"
    return ""


def first_start(statuses: Iterable[Status]) -> bool:
    """Say whether a container has its first start before it: what it writes is its progress."""
    return any(not item["started"] and not _ended(item) for item in statuses)


def end_words(ended: Status) -> str:
    """Say how a run ended: by whom or with what code, and the error that it wrote."""
    reason, message, code = ended["reason"], ended.get("message", ""), ended["exitCode"]
    if reason == "StartError":
        return f"cannot be started: {message}"
    if reason == "OOMKilled":
        return "out of memory, killed by the kernel" + _also(message)
    if reason not in ("Error", "Completed"):  # a probe's verdict, as the kubelet noted it
        return f"{reason}{_also(message)}"
    if ended.get("signal"):
        return exit_words(code) + _also(message)
    return f"{exit_words(code)}: {message}" if message else exit_words(code)


def _also(message: str) -> str:
    """Add an error that the run wrote, which need not be the cause of its end."""
    return f"; its last error: {message}" if message else ""


def _why(item: Status) -> str:
    name, state, ended = item["name"], item["state"], _ended(item)
    if "running" not in state:
        after = ", restarting" if "waiting" in state else ""
        return f"{name}: {end_words(ended)}{after}" if ended else ""
    asked = state["running"].get("probeMessage", "")
    if ended and (not item["started"] or not asked):  # this run has not been ready yet
        again = f"{name}: restarted ({end_words(ended)})"
        return f"{again}; now {asked}" if asked else again
    return f"{name}: {asked}" if asked else ""


def _ended(item: Status) -> Status | None:
    """Return the end of the run before this one, or of this one."""
    ended: Status | None = item["state"].get("terminated") or item.get("lastState", {}).get(
        "terminated"
    )
    return ended


def awaited(wanted: Mapping[str, int], ready: Mapping[str, int], *, served: bool) -> str:
    """Return which workers are missing, in counts; nothing when every one is ready."""
    off = [role for role, count in wanted.items() if not count]
    if off:
        return f"nothing can be served: spec.{off[0]}.replicas is 0, and a pair needs both"
    if all(ready.get(role, 0) >= count for role, count in wanted.items()):
        return ""
    each = (f"{role} {ready.get(role, 0)}/{count} ready" for role, count in wanted.items())
    counts = ", ".join(each)
    if served:
        return f"workers are missing: {counts}"
    paired = all(ready.get(role, 0) for role in wanted)
    return f"waiting for {'the other workers' if paired else 'the first pair'}: {counts}"
