"""Makes a failing day shorter while it still fails: fewer faults, requests and workers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from pdcluster_worker.sim.schedule import Schedule

TRIES_MAX: Final = 400  # runs of a day

T = TypeVar("T")


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The shortest day found for which ``fails`` is still true."""
    tries = 0
    progress = True
    while progress:
        progress = False
        for candidate in _simpler(schedule):
            tries += 1
            if tries > TRIES_MAX:
                return schedule
            if fails(candidate):
                schedule, progress = candidate, True
                break
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    for faults in _without(schedule.faults):
        yield replace(schedule, faults=faults)
    for requests in _without(schedule.requests):
        yield replace(schedule, requests=requests)
    needed = {host for r in schedule.requests for host in (r.prefill, r.decode)}
    needed |= {fault.host for fault in schedule.faults}
    for node in schedule.nodes:
        alone = sum(other.role == node.role for other in schedule.nodes) == 1
        if node.host not in needed and not alone:
            yield replace(schedule, nodes=tuple(n for n in schedule.nodes if n is not node))
    for index, request in enumerate(schedule.requests):
        for change in ({"max_new": 1}, {"prompt": 5}):
            if any(getattr(request, name) > value for name, value in change.items()):
                simpler = replace(request, **change)  # type: ignore[arg-type]
                yield replace(schedule, requests=_with(schedule.requests, index, simpler))


def _without(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Halves first, then one after the other."""
    size = len(items) // 2
    while size >= 1:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
