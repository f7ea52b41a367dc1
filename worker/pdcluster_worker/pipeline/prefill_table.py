"""The life-cycle table of a request on prefill; `prefill` walks it."""

from enum import StrEnum
from typing import Final

from pdcluster_api.states import Stage
from pdcluster_worker.core.errors import (
    BootstrapTimeout,
    QueueTimeout,
    TransferTimeout,
    WorkerError,
)
from pdcluster_worker.pipeline.table import Row, Table


class Event(StrEnum):
    """What can happen to a request on prefill."""

    SUBMITTED = "submitted"
    PUBLISHED = "published"
    ADMITTED = "admitted"
    CHUNK = "chunk computed"
    COMPUTED = "prompt computed"
    SETTLED = "writes settled"
    QUIET = "quiet"
    FAILED = "failed"


class Action(StrEnum):
    """What is done on the way; each is a method of `PrefillPipeline`."""

    SEND_PAGES = "send whole pages"
    SEND_LAST = "send last pages and row"
    DISCARD = "discard prepared writes"
    REPORT = "report figures to decode"
    TELL = "tell decode"
    BURY = "remember the room"
    ACK = "acknowledge to decode"
    RELEASE = "release the lease"
    ANSWER = "answer the client"
    ANSWER_FAILURE = "answer the failure"


TABLE: Final[Table[Event, Action]] = {
    (None, Event.SUBMITTED): Row(Stage.BOOTSTRAP),
    (Stage.BOOTSTRAP, Event.PUBLISHED): Row(Stage.WAITING),
    (Stage.WAITING, Event.ADMITTED): Row(Stage.FORWARD),
    (Stage.FORWARD, Event.CHUNK): Row(Stage.FORWARD, (Action.SEND_PAGES,)),
    (Stage.FORWARD, Event.COMPUTED): Row(Stage.INFLIGHT, (Action.SEND_LAST,)),
    (Stage.INFLIGHT, Event.SETTLED): Row(None, (Action.REPORT, Action.RELEASE, Action.ANSWER)),
    (Stage.BOOTSTRAP, Event.FAILED): Row(
        None, (Action.TELL, Action.ACK, Action.BURY, Action.ANSWER_FAILURE)
    ),
    (Stage.WAITING, Event.FAILED): Row(None, (Action.TELL, Action.ACK, Action.ANSWER_FAILURE)),
    (Stage.FORWARD, Event.FAILED): Row(
        Stage.DEFERRED, (Action.DISCARD, Action.TELL, Action.ANSWER_FAILURE)
    ),
    (Stage.INFLIGHT, Event.FAILED): Row(Stage.DEFERRED, (Action.TELL, Action.ANSWER_FAILURE)),
    (Stage.DEFERRED, Event.FAILED): Row(Stage.DEFERRED),
    (Stage.DEFERRED, Event.QUIET): Row(None, (Action.ACK, Action.RELEASE)),
}


def overdue(stage: Stage | None, waited_s: float) -> WorkerError | None:
    """What a request fails with that stayed in ``stage`` for too long; None: it stays."""
    waited = f"after {waited_s:.1f} s"
    if stage is Stage.BOOTSTRAP:
        return BootstrapTimeout(f"no decode published pages {waited}")
    if stage is Stage.INFLIGHT:
        return TransferTimeout(f"the last writes did not settle {waited}")
    if stage is Stage.DEFERRED:
        return None
    return QueueTimeout(f"not computed {waited}")
