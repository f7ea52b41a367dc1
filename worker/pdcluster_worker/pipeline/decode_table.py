"""The life-cycle table of a request on decode; `decode` walks it."""

from enum import StrEnum
from typing import Final

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline.events import Event
from pdcluster_worker.pipeline.table import Row, Table


class Action(StrEnum):
    """What is done on the way; each is a method of `DecodePipeline`."""

    PUBLISH = "publish pages"
    COMMIT = "read the row, hand on the first token"
    DROP = "drop the host copy"
    ISOLATE = "quarantine pages and row"
    TELL = "tell prefill"
    RELEASE = "release the lease"
    ANSWER_FAILURE = "answer the failure"


TABLE: Final[Table[Event, Action]] = {
    (None, Event.SUBMITTED): Row(Stage.HANDSHAKE),
    (Stage.HANDSHAKE, Event.REACHED): Row(Stage.PREALLOC),
    (Stage.PREALLOC, Event.ADMITTED): Row(Stage.TRANSFER, (Action.PUBLISH,)),
    (Stage.TRANSFER, Event.DELIVERED): Row(Stage.COMMITTED, (Action.COMMIT,)),
    (Stage.COMMITTED, Event.JOINED): Row(Stage.RUNNING),
    (Stage.COMMITTED, Event.FINISHED): Row(None, (Action.RELEASE,)),
    (Stage.RUNNING, Event.FINISHED): Row(None, (Action.RELEASE,)),
    (Stage.RUNNING, Event.PUSHED_OUT): Row(Stage.RETRACTED, (Action.RELEASE,)),
    (Stage.COMMITTED, Event.PUSHED_OUT): Row(Stage.RETRACTED, (Action.RELEASE,)),
    (Stage.RETRACTED, Event.RESUMED): Row(Stage.COMMITTED),
    (Stage.HANDSHAKE, Event.FAILED): Row(None, (Action.TELL, Action.ANSWER_FAILURE)),
    (Stage.PREALLOC, Event.FAILED): Row(None, (Action.TELL, Action.ANSWER_FAILURE)),
    # Armed before the abort is sent: a fast acknowledgement finds the quarantine in place.
    (Stage.TRANSFER, Event.FAILED): Row(
        Stage.DEFERRED, (Action.ISOLATE, Action.TELL, Action.ANSWER_FAILURE)
    ),
    (Stage.COMMITTED, Event.FAILED): Row(None, (Action.RELEASE, Action.ANSWER_FAILURE)),
    # The pass that runs may still read and write its pages: they are released when it is over.
    (Stage.RUNNING, Event.FAILED): Row(Stage.DEFERRED, (Action.ANSWER_FAILURE,)),
    (Stage.RETRACTED, Event.FAILED): Row(None, (Action.DROP, Action.ANSWER_FAILURE)),
    (Stage.DEFERRED, Event.FAILED): Row(Stage.DEFERRED),
    (Stage.DEFERRED, Event.QUIET): Row(None, (Action.RELEASE,)),
}
