"""The life-cycle tables as data: nothing unreachable, nothing unused, every stage can fail."""

import inspect
from enum import StrEnum
from typing import Any

import pytest

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline import aggregated, decode, decode_table, prefill, prefill_table
from pdcluster_worker.pipeline.table import Row, Walker

TABLES: list[tuple[dict[Any, Row[Any]], type[StrEnum], type[Any]]] = [
    (dict(prefill_table.TABLE), prefill_table.Action, prefill.PrefillPipeline),
    (dict(decode_table.TABLE), decode_table.Action, decode.DecodePipeline),
    (dict(aggregated.TABLE), aggregated.Action, aggregated.AggregatedPipeline),
]
ROLES = pytest.mark.parametrize(
    ("table", "actions", "pipeline"), TABLES, ids=["prefill", "decode", "aggregated"]
)


@ROLES
def test_every_stage_is_reached_from_the_start_and_reaches_the_end(
    table: dict[Any, Row[Any]], actions: type[StrEnum], pipeline: type[Any]
) -> None:
    del actions, pipeline
    reached: set[Stage | None] = {None}
    for _ in table:
        reached |= {row.target for (stage, _), row in table.items() if stage in reached}
    stages = {stage for stage, _ in table}
    assert reached == stages
    ending: set[Stage | None] = {None}
    for _ in table:
        ending |= {stage for (stage, _), row in table.items() if row.target in ending}
    assert ending == stages


@ROLES
def test_every_action_is_used_and_handled(
    table: dict[Any, Row[Any]], actions: type[StrEnum], pipeline: type[Any]
) -> None:
    assert {action for row in table.values() for action in row.actions} == set(actions)
    source = inspect.getsource(pipeline._act)
    missing = [action.name for action in actions if f"Action.{action.name}" not in source]
    assert missing == []


@ROLES
def test_every_stage_that_lives_can_fail(
    table: dict[Any, Row[Any]], actions: type[StrEnum], pipeline: type[Any]
) -> None:
    del pipeline
    stages = {stage for stage, _ in table if stage is not None}
    if actions is aggregated.Action:
        stages -= {Stage.COMMITTED}  # never for longer than a part of a turn
    assert {stage for stage, event in table if event == "failed"} == stages


@ROLES
def test_a_failure_is_answered_exactly_where_the_client_still_waits(
    table: dict[Any, Row[Any]], actions: type[StrEnum], pipeline: type[Any]
) -> None:
    del pipeline
    answer = actions["ANSWER_FAILURE"]
    for (stage, event), row in table.items():
        if event == "failed":
            assert (answer in row.actions) is (stage is not Stage.DEFERRED), stage


@ROLES
def test_only_a_quiet_request_leaves_the_deferred_stage(
    table: dict[Any, Row[Any]], actions: type[StrEnum], pipeline: type[Any]
) -> None:
    del pipeline
    leaving = {
        (event, row.target)
        for (stage, event), row in table.items()
        if stage is Stage.DEFERRED and row.target is not Stage.DEFERRED
    }
    assert {(str(event), target) for event, target in leaving} == {("quiet", None)}
    assert actions["RELEASE"] in table[(Stage.DEFERRED, next(iter(leaving))[0])].actions


def test_an_event_that_means_nothing_here_changes_nothing() -> None:
    walker: Walker[prefill_table.Event, prefill_table.Action] = Walker(prefill_table.TABLE)
    assert walker.step(Stage.BOOTSTRAP, prefill_table.Event.SETTLED) is None
    assert not walker.taken
