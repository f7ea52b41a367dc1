"""What decode knows of one hand-off that it has published: what has come, who may still write."""

from dataclasses import dataclass, field

from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.wire.local import Handoff
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import Abort, Delivered, Publish


@dataclass(slots=True, kw_only=True)
class Arrival:
    """Of one room and generation, from one prefill."""

    instance: str  # the only writer
    generation: int
    pages: int  # expected
    published_at: float
    latest: float  # a deadline that no sign of life extends
    chunks: set[int] = field(default_factory=set)
    total: int | None = None  # chunks, once the one marked last has come
    row: bool = False
    armed: bool = False  # the writer's acknowledgement is awaited
    quiet: bool = False  # proven: the writer will not touch the pages any more
    reason: tuple[str, str] = ("aborted", "ended")  # (kind, message) of the failure

    def take(self, notice: Notice) -> bool:
        """Account for one notice; False when it contradicts what was published."""
        if (notice.writer, notice.generation) != (self.instance, self.generation):
            return False
        if notice.kind is NoticeKind.ROW:
            self.row = True
            return True
        self.chunks.add(notice.chunk)
        if notice.last:
            if notice.pages != self.pages:
                return False
            self.total = notice.chunk + 1
        return self.total is None or max(self.chunks) < self.total

    @property
    def complete(self) -> bool:
        """Every chunk up to the last and the row have come."""
        return self.row and self.total is not None and len(self.chunks) == self.total

    # ------------------------------------------------------------------- what is said about it
    def publish(self, request: Request) -> Publish:
        """The permission to write."""
        assert request.lease is not None
        assert request.lease.row is not None
        return Publish(
            room=request.room,
            generation=self.generation,
            pages=request.lease.pages.astype("<i4").tobytes(),
            start_page=0,
            row=request.lease.row,
            prompt_tokens=len(request.prompt),
            digest=request.digest,
        )

    def abort(self, room: int) -> Abort:
        """The permission is withdrawn; an AbortAck is owed."""
        kind, message = self.reason
        return Abort(room=room, generation=self.generation, kind=kind, message=message)

    def figures(self, now: float, *, page_bytes: int, row_bytes: int) -> Handoff:
        """As decode sees it, until prefill's own account comes."""
        return Handoff(
            pages=self.pages,
            bytes=self.pages * page_bytes + row_bytes,
            chunks=len(self.chunks),
            descriptors=None,
            seconds=None,
            total_seconds=now - self.published_at,
        )

    def account(self, seen: Handoff, told: Delivered) -> Handoff:
        """Decode's figures completed by prefill's."""
        return Handoff(
            pages=seen.pages,
            bytes=told.bytes,
            chunks=seen.chunks,
            descriptors=told.descriptors,
            seconds=told.seconds,
            total_seconds=seen.total_seconds,
        )
