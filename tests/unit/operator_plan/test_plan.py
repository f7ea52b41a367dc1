"""The planner: stable, never more than wanted, never an index twice."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pdcluster_operator.plan import (
    Create,
    Delete,
    Group,
    PoolTarget,
    Step,
    kv_fingerprint,
    plan_pool,
)
from pdcluster_operator.spec import read_cluster

groups = st.lists(
    st.builds(
        Group,
        role=st.sampled_from(["prefill", "decode"]),
        index=st.integers(0, 8),
        pod_hash=st.sampled_from(["old", "new"]),
        ready=st.booleans(),
        failed=st.booleans(),
        terminating=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda group: (group.role, group.index),
)
targets = st.builds(
    PoolTarget, role=st.just("prefill"), replicas=st.integers(0, 6), pod_hash=st.just("new")
)


def apply(observed: list[Group], steps: tuple[Step, ...], pod_hash: str) -> list[Group]:
    """What the next look sees: deleted groups terminate, created ones start."""
    result = list(observed)
    for step in steps:
        match step:
            case Create(role=role, index=index):
                assert all((g.role, g.index) != (role, index) for g in result)
                result.append(Group(role, index, pod_hash))
            case Delete(role=role, index=index):
                at = next(i for i, g in enumerate(result) if (g.role, g.index) == (role, index))
                assert not result[at].terminating
                result[at] = replace(result[at], terminating=True)
    return result


@given(targets, groups)
def test_one_plan_reaches_the_target_and_the_next_is_empty(
    target: PoolTarget, observed: list[Group]
) -> None:
    after = apply(observed, plan_pool(target, observed), target.pod_hash)
    live = [g for g in after if g.role == target.role and not g.terminating]
    assert len(live) == target.replicas
    assert all(g.pod_hash == target.pod_hash and not g.failed for g in live)
    assert plan_pool(target, after) == ()


@given(targets, groups)
def test_other_pools_are_left_alone(target: PoolTarget, observed: list[Group]) -> None:
    assert all(step.role == target.role for step in plan_pool(target, observed))


def test_scaling_down_keeps_what_serves_and_the_lowest_index() -> None:
    observed = [Group("prefill", i, "h", ready=i in (1, 2)) for i in range(4)]
    steps = plan_pool(PoolTarget("prefill", 2, "h"), observed)
    assert [step.index for step in steps] == [0, 3]


def test_a_stuck_pod_does_not_block_its_successor() -> None:
    observed = [Group("decode", 0, "h", terminating=True)]
    assert plan_pool(PoolTarget("decode", 1, "h"), observed) == (Create("decode", 1),)


def fingerprint(**spec: object) -> str:
    return kv_fingerprint(
        read_cluster(
            {
                "apiVersion": "pdcluster.dev/v1alpha1",
                "kind": "PDCluster",
                "metadata": {"name": "c"},
                "spec": {"model": {"source": "tiny://llama"}, **spec},
            }
        ).spec
    )


def test_the_fingerprint_changes_with_the_layout_and_with_nothing_else() -> None:
    base = fingerprint()
    assert fingerprint(prefill={"replicas": 5}, engine={"threads": 3, "kvPages": 9}) == base
    assert fingerprint(model={"source": "tiny://llama", "servedName": "other"}) == base
    assert fingerprint(engine={"pageTokens": 32}) != base
    assert fingerprint(engine={"dtype": "float32"}) != base
    assert fingerprint(model={"source": "tiny://other"}) != base
