"""Decisions: from what is wanted and what is there to what to create and delete. Pure."""

from pdcluster_operator.plan.fingerprint import kv_fingerprint
from pdcluster_operator.plan.groups import Create, Delete, Group, PoolTarget, Step, plan_pool

__all__ = ["Create", "Delete", "Group", "PoolTarget", "Step", "kv_fingerprint", "plan_pool"]
