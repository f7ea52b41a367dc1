"""The notice that a NIXL write carries: fixed-size, so that it is cheap to make and to check.

Every field that could let an old, foreign or replayed notice pass for a present one is in it:
room, generation, writer's instance, reader's instance, source rank, chunk.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from pdcluster_worker.core.errors import WireError

_FORMAT = struct.Struct("<4sBBHQQIII16s16s")
_MAGIC = b"PDN1"
_LAST = 1
NOTICE_BYTES = _FORMAT.size


class NoticeKind(IntEnum):
    """What has been written."""

    WARM = 1  # the warm-up row of a handshake
    CHUNK = 2  # KV pages of one chunk
    ROW = 3  # the metadata row, from its one designated writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One completed write, told to its reader."""

    kind: NoticeKind
    writer: str  # instance, 32 hex digits
    reader: str  # instance, 32 hex digits
    room: int = 0
    generation: int = 0
    source: int = 0  # rank of the writer within its group
    chunk: int = 0  # 0, 1, ... per room, generation and source
    pages: int = 0  # pages written before this notice, this chunk included
    last: bool = False  # explicit: never inferred from a counter

    def pack(self) -> bytes:
        """``NOTICE_BYTES`` bytes."""
        return _FORMAT.pack(
            _MAGIC,
            self.kind,
            _LAST if self.last else 0,
            self.source,
            self.room,
            self.generation,
            self.chunk,
            self.pages,
            0,
            bytes.fromhex(self.writer),
            bytes.fromhex(self.reader),
        )


def unpack(data: bytes) -> Notice:
    """The notice in ``data``. Raises WireError when it is none of ours."""
    if len(data) != NOTICE_BYTES:
        raise WireError(f"notice of {len(data)} bytes, expected {NOTICE_BYTES}")
    magic, kind, flags, source, room, generation, chunk, pages, _, writer, reader = _FORMAT.unpack(
        data
    )
    if magic != _MAGIC:
        raise WireError("not a pdcluster notice")
    try:
        known = NoticeKind(kind)
    except ValueError:
        raise WireError(f"notice of unknown kind {kind}") from None
    return Notice(
        kind=known,
        writer=writer.hex(),
        reader=reader.hex(),
        room=room,
        generation=generation,
        source=source,
        chunk=chunk,
        pages=pages,
        last=bool(flags & _LAST),
    )
