"""Which groups of one pool to create and delete.

The life of a group (the pods of one worker), as the planner sees it:

    1. absent        the planner wants it                    -> Create with a free index
    2. starting      exists, not ready yet                   counts towards the target
    3. ready         serves                                  counts towards the target
    4. surplus       more than wanted, or of another hash    -> Delete
    5. failed        its pods ended for good                 -> Delete, and 1 again
    6. terminating   on its way out; counts for nothing, but keeps its index: a pod stuck in
                     Terminating must not block its successor, which takes another name

This planner replaces a changed group at once. It plans one pool from integers and plain data; a
planner that rolls, drains and keeps ratios has the same inputs and outputs.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """One observed group."""

    role: str
    index: int
    pod_hash: str
    ready: bool = False
    failed: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class PoolTarget:
    """What one pool should be."""

    role: str
    replicas: int
    pod_hash: str


@dataclass(frozen=True, slots=True)
class Create:
    """Make a group of this role under this index."""

    role: str
    index: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Take this group away; `reason` is for people."""

    role: str
    index: int
    reason: str


Step = Create | Delete


def plan_pool(target: PoolTarget, observed: Iterable[Group]) -> tuple[Step, ...]:
    """Return the steps that bring the pool to its target; none when it is there.

    Applying the steps and planning again yields none: the plan is stable.
    """
    groups = [group for group in observed if group.role == target.role]
    taken = {group.index for group in groups}
    live = [group for group in groups if not group.terminating]
    steps: list[Step] = []
    kept: list[Group] = []
    for group in sorted(live, key=lambda one: one.index):
        if group.failed:
            steps.append(Delete(group.role, group.index, "its pod failed"))
        elif group.pod_hash != target.pod_hash:
            steps.append(Delete(group.role, group.index, "its specification changed"))
        else:
            kept.append(group)
    # What serves is kept; among equals the oldest name is.
    kept.sort(key=lambda one: (not one.ready, one.index))
    steps += [Delete(one.role, one.index, "scaled down") for one in kept[target.replicas :]]
    free = (index for index in range(len(taken) + target.replicas) if index not in taken)
    missing = max(target.replicas - len(kept), 0)
    steps += [Create(target.role, index) for _, index in zip(range(missing), free, strict=False)]
    return tuple(steps)
