"""All failures of the worker, drawn once.

    WorkerError                       code  retried by a router?
      BadRequest                       400  no    the client's fault; names the field
        PromptTooLong                  400  no
        NotAllowed                     401  no    no token, or a wrong one
        UnknownRank                    404  no    no such row at the bootstrap server
        RequestTimeout                 408  no    the request did not come in time
        RowConflict                    409  no    ranks that disagree
        BodyTooLarge                   413  no
        HeadTooLarge                   431  no
      Aborted                          499  no    somebody asked for it
        ClientGone                     499  no    the client left
      Unavailable                      503  yes   another pair could serve it
        Overloaded                     503  yes   a queue or pool is full
        Draining                       503  yes
        Quarantined                    503  yes   too much memory waits for a proof
        RoomConflict                   503  yes   the room is in use (E20); a new one will do
        PeerIncompatible               503  yes   other KV layout, schema, dtype or cluster
        PeerLost                       503  yes   the other leg died or fell silent
        PeerRefused                    503  yes   the other leg said no
        BootstrapTimeout               503  yes   no decode came for this room
        HandshakeTimeout               503  yes   no prefill answered
        QueueTimeout                   503  yes   no memory or slot in time
        TransferTimeout                503  yes   published, never completed
      TransferError                    500  no    one write failed
        TransferPeerLost               503  yes   the library says the peer is gone
        TransferInvalid                500  no    refused by the library: our bug
      MetadataCorrupt                  500  no    the row names another room (F17)
      EngineError                      500  no    the forward pass raised
      WireError                        500  no    a frame that does not decode; dropped, counted

Every error maps to HTTP here and nowhere else: ``code`` and ``retryable`` are class attributes.
"""

from typing import ClassVar


class WorkerError(Exception):
    """Base of the tree; ``str(error)`` is safe to show to a client."""

    code: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    kind: ClassVar[str] = "internal_error"


class BadRequest(WorkerError):
    """The client asked for something impossible; ``field`` says where."""

    code = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PromptTooLong(BadRequest):
    """Prompt plus room for an answer exceeds this worker's capacity."""

    kind = "context_length_exceeded"


class NotAllowed(BadRequest):
    """The token is missing or wrong."""

    code = 401
    kind = "unauthorized"


class UnknownRank(BadRequest):
    """The bootstrap server has no row for the rank that was asked for."""

    code = 404
    kind = "unknown_rank"


class RequestTimeout(BadRequest):
    """The client did not send its whole request in time."""

    code = 408
    kind = "request_timeout"


class RowConflict(BadRequest):
    """A registrant at the bootstrap server disagrees with the ranks that are already there."""

    code = 409
    kind = "row_conflict"


class BodyTooLarge(BadRequest):
    """The body is larger than this server takes."""

    code = 413
    kind = "body_too_large"


class HeadTooLarge(BadRequest):
    """The request line and the headers are larger than this server takes."""

    code = 431
    kind = "head_too_large"


class Aborted(WorkerError):
    """Somebody asked for the abort: the answer so far is the answer, on both legs."""

    code = 499
    kind = "aborted"


class ClientGone(Aborted):
    """The client left this leg; one that still waits at the other leg asked for no abort."""

    kind = "client_gone"


class Unavailable(WorkerError):
    """This pair cannot serve it now; another could."""

    code = 503
    retryable = True
    kind = "unavailable"


class Overloaded(Unavailable):
    """A queue or a pool is full."""

    kind = "overloaded"


class Draining(Unavailable):
    """The worker takes no new requests."""

    kind = "draining"


class Quarantined(Unavailable):
    """Too much memory could still be written by peers that are not proven dead."""

    kind = "quarantined"


class RoomConflict(Unavailable):
    """A live request already owns this bootstrap_room (E20).

    Rooms are the router's choice, which makes a new one when it tries again: a connection that was
    cut leaves its room behind for a moment, through no fault of the client.
    """

    kind = "room_conflict"


class PeerIncompatible(Unavailable):
    """The peer's KV layout, metadata schema, protocol version or cluster differs (E8, E9)."""

    kind = "peer_incompatible"


class PeerLost(Unavailable):
    """The other leg died or fell silent."""

    kind = "peer_lost"


class PeerRefused(Unavailable):
    """The other leg ended this request; its reason is in the message."""

    kind = "peer_refused"


class BootstrapTimeout(Unavailable):
    """No decode published pages for this room in time (E56)."""

    kind = "bootstrap_timeout"


class HandshakeTimeout(Unavailable):
    """No prefill answered at the given bootstrap address in time (E22)."""

    kind = "handshake_timeout"


class QueueTimeout(Unavailable):
    """Waited too long for memory, a slot or the engine."""

    kind = "queue_timeout"


class TransferTimeout(Unavailable):
    """Pages were published and the hand-off never completed (E81)."""

    kind = "transfer_timeout"


class TransferError(WorkerError):
    """One write failed."""

    kind = "transfer_error"


class TransferPeerLost(TransferError):
    """The transfer library says that the peer is gone."""

    code = 503
    retryable = True
    kind = "transfer_peer_lost"


class TransferInvalid(TransferError):
    """The transfer library refused our arguments."""

    kind = "transfer_invalid"


class MetadataCorrupt(WorkerError):
    """The metadata row names another room or generation (F17)."""

    kind = "metadata_corrupt"


class EngineError(WorkerError):
    """The forward pass raised."""

    kind = "engine_error"


class WireError(WorkerError):
    """A frame does not decode, is too large, or is of another version or cluster."""

    kind = "wire_error"


def by_kind() -> dict[str, type[WorkerError]]:
    """Every class of the tree under its ``kind``; kinds are unique (a test walks this)."""
    found: dict[str, type[WorkerError]] = {}
    todo: list[type[WorkerError]] = [WorkerError]
    while todo:
        cls = todo.pop()
        found[cls.kind] = cls
        todo.extend(cls.__subclasses__())
    return found


def mirrored(kind: str, message: str) -> WorkerError:
    """What the other leg's end, described by ``kind`` and ``message``, is on this one.

    Whoever left the other leg has said nothing for the client that still waits here.
    """
    error = rebuild(kind, message)
    return PeerRefused(message) if isinstance(error, ClientGone) else error


def rebuild(kind: str, message: str) -> WorkerError:
    """The error that another process of the worker described by ``kind`` and ``message``."""
    return by_kind().get(kind, WorkerError)(message)
