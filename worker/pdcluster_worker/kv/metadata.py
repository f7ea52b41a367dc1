"""The metadata row: what travels besides the KV (spec B.4), as one packed record per row.

Both sides must lay it out alike, so `SCHEMA` (a hash of names, types and offsets) is compared at
the handshake: a difference would overwrite neighbours (E4c). A row has exactly one writer.
"""

import hashlib
import math
import struct

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.ports import RowContent

TOP_MAX = 128  # top logprobs per token; more is a 400 at intake (E76)
_ALIGN = 64

_HEAD = struct.Struct("<QQiiifi4x")
_HEAD_NAMES = "room generation token prompt_tokens cached_tokens logprob top_count"
_BELIEF = struct.Struct("<QQ")  # room and generation: what makes a row believable
_TOKENS_AT = _HEAD.size
_LOGPROBS_AT = _TOKENS_AT + 4 * TOP_MAX
ROW_BYTES = -(-(_LOGPROBS_AT + 4 * TOP_MAX) // _ALIGN) * _ALIGN
SCHEMA = hashlib.blake2b(
    f"{_HEAD.format} {_HEAD_NAMES} {TOP_MAX}i {TOP_MAX}f {ROW_BYTES}".encode(), digest_size=8
).hexdigest()


class Rows:
    """`core.ports.RowStore` over uint8 ``[rows, ROW_BYTES]``, which stays the caller's."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        if array.shape[1] != ROW_BYTES:
            raise ValueError(f"rows of {array.shape[1]} bytes, expected {ROW_BYTES}")
        self._memory = memoryview(array.data).cast("B")

    def write(self, row: int, content: RowContent) -> None:
        """Fill a row."""
        count = len(content.top)
        if count > TOP_MAX:
            raise ValueError(f"{count} top logprobs, at most {TOP_MAX}")
        start = row * ROW_BYTES
        if count:
            tokens, logprobs = zip(*content.top, strict=True)
            struct.pack_into(f"<{count}i", self._memory, start + _TOKENS_AT, *tokens)
            struct.pack_into(f"<{count}f", self._memory, start + _LOGPROBS_AT, *logprobs)
        _HEAD.pack_into(
            self._memory,
            start,
            content.room,
            content.generation,
            content.token,
            content.prompt_tokens,
            content.cached_tokens,
            math.nan if content.logprob is None else content.logprob,
            count,
        )

    def read(self, row: int) -> RowContent:
        """What the row says; whether it may be believed is decided by room and generation."""
        start = row * ROW_BYTES
        room, generation, token, prompt_tokens, cached_tokens, logprob, count = _HEAD.unpack_from(
            self._memory, start
        )
        count = max(0, min(count, TOP_MAX))
        top: tuple[tuple[int, float], ...] = ()
        if count:
            tokens = struct.unpack_from(f"<{count}i", self._memory, start + _TOKENS_AT)
            logprobs = struct.unpack_from(f"<{count}f", self._memory, start + _LOGPROBS_AT)
            top = tuple(zip(tokens, logprobs, strict=True))
        return RowContent(
            room=room,
            generation=generation,
            token=token,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            logprob=None if math.isnan(logprob) else logprob,
            top=top,
        )

    def clear(self, row: int) -> None:
        """Zero what makes a row believable."""
        _BELIEF.pack_into(self._memory, row * ROW_BYTES, 0, 0)
