"""Prefill's sends of one worker: what goes to decode, in which write, with which notice.

Whole pages of a chunk go out while the next chunk computes; the last send takes the partial page
and says explicitly that it is the last; the metadata row follows in a write of its own (spec F4,
B.4).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdcluster_worker.core.errors import PeerIncompatible, WorkerError
from pdcluster_worker.core.ports import PageIds, RowContent
from pdcluster_worker.pipeline.base import PipelineSettings
from pdcluster_worker.pipeline.effects import Discard, Effect, FillRow, Prepare, Write
from pdcluster_worker.pipeline.peers import PeerTable
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.wire.local import Handoff
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import AbortAck, Delivered, Publish, Refused, RoomKey

Orphan = tuple[str, Publish]  # decode's instance, what it published


@dataclass(slots=True)
class Hand:
    """The destination of one request and what has been sent there."""

    instance: str
    publish: Publish
    target: PageIds  # decode's pages, for our pages start_page, start_page + 1, ...
    sent_pages: int = 0
    chunks: int = 0
    open_writes: int = 0
    prepared: tuple[Write, Write] | tuple[()] = ()  # the last pages and the row, not posted yet
    bytes: int = 0
    descriptors: int = 0
    first_at: float = 0.0

    def contradiction(self, request: Request, pages: int) -> PeerIncompatible | None:
        """Why this cannot be the destination of our prompt; None: it can.

        The same number of tokens is not enough: a room that two requests share would hand one
        client the answer of the other.
        """
        told, prompt_tokens = self.publish.prompt_tokens, len(request.prompt)
        if (
            told == prompt_tokens
            and self.publish.digest == request.digest
            and len(self.target) == pages > 0
            and len(self.target) * 4 == len(self.publish.pages)
        ):
            return None
        return PeerIncompatible(
            f"the legs disagree about the prompt: {prompt_tokens} tokens here, {told} there; "
            f"{pages} pages expected, {len(self.publish.pages) / 4:g} published"
        )

    @property
    def room(self) -> RoomKey:
        """Room and generation."""
        return self.publish.room, self.publish.generation

    @property
    def published(self) -> Orphan:
        """Who published what."""
        return self.instance, self.publish

    def figures(self, now: float) -> Handoff:
        """What it cost, once settled."""
        return Handoff(
            pages=self.sent_pages,
            bytes=self.bytes,
            chunks=self.chunks,
            descriptors=self.descriptors,
            seconds=now - self.first_at,
            total_seconds=now - self.first_at,
        )


def hand_of(instance: str, publish: Publish) -> Hand:
    """The destination that a decode has published; what is no whole page id is left out."""
    whole = len(publish.pages) // 4 * 4
    target = np.frombuffer(publish.pages[:whole], dtype="<i4").astype(np.int32)
    return Hand(instance, publish, target)


@dataclass(frozen=True, slots=True)
class Part:
    """One write: items of a region of ours into items of the same region of decode's."""

    region: str
    source: PageIds
    target: PageIds


class Sender:
    """Turns computed pages into writes and outcomes into frames; its state is in each `Hand`."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        peers: PeerTable,
        emit: Callable[[Effect], None],
        instance: str,
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._emit = emit
        self._instance = instance
        self._tickets = itertools.count(1)

    def pages(self, request: Request, hand: Hand, *, now: float) -> None:
        """Send the whole pages computed so far."""
        whole = request.computed // self._settings.page_tokens
        if whole > hand.publish.start_page + hand.sent_pages:  # else: a chunk within a page
            write = self._pages(request, hand, end=whole, last=False)
            self._open(hand, write, now=now)

    def prepare_last(self, request: Request, hand: Hand) -> None:
        """Make the last writes ready while their chunk is computed."""
        hand.prepared = self._last(request, hand)
        for write in hand.prepared:
            self._emit(Prepare(write))

    def discard(self, hand: Hand) -> None:
        """The last writes will not be posted."""
        for write in hand.prepared:
            self._emit(Discard(write.ticket))
        hand.prepared = ()

    def last(self, request: Request, hand: Hand, *, now: float) -> None:
        """Send the remaining pages, the partial one too, and the metadata row."""
        pages, row = hand.prepared or self._last(request, hand)
        hand.prepared = ()
        # Pages first: the library copies while it posts, and the row is filled behind it.
        self._open(hand, pages, now=now)
        self._emit(FillRow(int(row.source[0]), self._content(request, hand)))
        self._open(hand, row, now=now)

    def _content(self, request: Request, hand: Hand) -> RowContent:
        token = request.first
        assert token is not None
        assert token.token is not None
        return RowContent(
            room=request.room,
            generation=hand.publish.generation,
            token=token.token,
            prompt_tokens=len(request.prompt),
            cached_tokens=0,
            logprob=token.logprob,
            top=token.top,
        )

    def _last(self, request: Request, hand: Hand) -> tuple[Write, Write]:
        """The write of the pages and that of the row.

        There always is a page to send: the prompt's last token lies in one that was not whole
        before it was computed.
        """
        assert request.lease is not None
        assert request.lease.row is not None
        end = self._settings.pages_for(len(request.prompt))
        pages = self._pages(request, hand, end=end, last=True)
        rows = np.array([[request.lease.row], [hand.publish.row]], np.int32)
        notice = self._notice(hand, NoticeKind.ROW, last=True)
        part = Part("meta", rows[0], rows[1])
        return pages, self._write(request.key, hand, part, notice=notice)

    def _pages(self, request: Request, hand: Hand, *, end: int, last: bool) -> Write:
        assert request.lease is not None
        first = hand.publish.start_page
        start = first + hand.sent_pages
        assert end > start
        hand.sent_pages = end - first
        notice = self._notice(hand, NoticeKind.CHUNK, last=last)
        hand.chunks += 1
        target = hand.target[start - first : end - first]
        part = Part("kv", request.lease.pages[start:end], target)
        return self._write(request.key, hand, part, notice=notice)

    def _notice(self, hand: Hand, kind: NoticeKind, *, last: bool) -> Notice:
        return Notice(
            kind=kind,
            writer=self._instance,
            reader=hand.instance,
            room=hand.publish.room,
            generation=hand.publish.generation,
            chunk=hand.chunks,
            pages=hand.sent_pages,
            last=last,
        )

    def _write(self, key: int, hand: Hand, part: Part, *, notice: Notice) -> Write:
        return Write(
            key=key,
            ticket=next(self._tickets),
            instance=hand.instance,
            region=part.region,
            source=part.source,
            target=part.target,
            notice=notice,
            within_s=self._settings.limits.transfer_timeout_s,
        )

    def _open(self, hand: Hand, write: Write, *, now: float) -> None:
        hand.open_writes += 1
        hand.first_at = hand.first_at or now
        self._emit(write)

    # ------------------------------------------------------------------------------ frames
    def report(self, hand: Hand, now: float) -> None:
        """Tell decode what the hand-off cost."""
        figures = Delivered(
            room=hand.publish.room,
            generation=hand.publish.generation,
            bytes=hand.bytes,
            descriptors=hand.descriptors,
            seconds=now - hand.first_at,
        )
        self._peers.say(hand.instance, figures)

    def refuse(self, published: Orphan, error: WorkerError, *, quiescent: bool) -> None:
        """End a room towards the decode that published it."""
        instance, publish = published
        refusal = Refused(
            room=publish.room,
            generation=publish.generation,
            kind=error.kind,
            message=str(error),
            quiescent=quiescent,
        )
        self._peers.say(instance, refusal)

    def ack(self, instance: str, room: RoomKey) -> None:
        """The proof that this room and generation will not be written any more."""
        self._peers.say(instance, AbortAck(room=room[0], generation=room[1]))
