"""Where the time to the first token goes, from what the workers themselves count.

Both readings are of `/metrics`: sums and counts before and after, so that a difference is the mean
of the requests between them.
"""

import re
from collections.abc import Mapping

import httpx

from bench.serving.fleet import System

LINE = re.compile(r'^pdcluster_(?P<name>\w+?)_(?P<part>sum|count)(?:\{stage="(?P<stage>\w+)"\})? (?P<value>\S+)$')  # fmt: skip # noqa: E501
WANTED = frozenset({"time_to_first_token_seconds", "stage_seconds"})
TTFT = "worker's time to first token"

Reading = Mapping[tuple[str, str], tuple[float, float]]  # (role, what) -> sum in s, count


def parse(text: str) -> dict[str, tuple[float, float]]:
    """What -> sum in seconds and count, of one worker's metrics."""
    found: dict[str, dict[str, float]] = {}
    for match in filter(None, map(LINE.match, text.splitlines())):
        if match["name"] in WANTED:
            found.setdefault(match["stage"] or TTFT, {})[match["part"]] = float(match["value"])
    return {what: (parts.get("sum", 0.0), parts.get("count", 0.0)) for what, parts in found.items()}


async def read(system: System) -> dict[tuple[str, str], tuple[float, float]]:
    """Every worker of a system."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    async with httpx.AsyncClient(trust_env=False) as http:
        for role, url in system.workers.items():
            answer = await http.get(f"{url}/metrics")
            found |= {(role, what): pair for what, pair in parse(answer.text).items()}
    return found


def means_ms(before: Reading, after: Reading) -> dict[tuple[str, str], float]:
    """Milliseconds per request, of what happened between two readings."""
    result = {}
    for key, (total, count) in after.items():
        total_before, count_before = before.get(key, (0.0, 0.0))
        if count > count_before:
            result[key] = 1e3 * (total - total_before) / (count - count_before)
    return result
