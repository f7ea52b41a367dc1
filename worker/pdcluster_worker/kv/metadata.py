"""The metadata row: what travels besides the KV (spec B.4), as one packed record per row.

Both sides must lay it out alike, so `SCHEMA` (a hash of names, types and offsets) is compared at
the handshake: a difference would overwrite neighbours (E4c). A row has exactly one writer.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from pdcluster_worker.core.ports import RowContent

TOP_MAX = 128  # top logprobs per token; more is a 400 at intake (E76)
_ALIGN = 64

_FIELDS = np.dtype(
    [
        ("room", "<u8"),  # 0 means not written
        ("generation", "<u8"),
        ("token", "<i4"),
        ("prompt_tokens", "<i4"),
        ("cached_tokens", "<i4"),
        ("logprob", "<f4"),  # NaN: not asked for
        ("top_count", "<i4"),
        ("spare", "<i4"),
        ("top_tokens", "<i4", (TOP_MAX,)),
        ("top_logprobs", "<f4", (TOP_MAX,)),
    ]
)
ROW_BYTES = -(-_FIELDS.itemsize // _ALIGN) * _ALIGN
SCHEMA = hashlib.blake2b(f"{_FIELDS.descr}/{ROW_BYTES}".encode(), digest_size=8).hexdigest()


class Rows:
    """`core.ports.RowStore` over uint8 ``[rows, ROW_BYTES]``, which stays the caller's."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        if array.shape[1] != ROW_BYTES:
            raise ValueError(f"rows of {array.shape[1]} bytes, expected {ROW_BYTES}")
        self._records = array[:, : _FIELDS.itemsize].view(_FIELDS)[:, 0]

    def write(self, row: int, content: RowContent) -> None:
        """Fill a row."""
        if len(content.top) > TOP_MAX:
            raise ValueError(f"{len(content.top)} top logprobs, at most {TOP_MAX}")
        record = self._records[row]
        record["generation"] = content.generation
        record["token"] = content.token
        record["prompt_tokens"] = content.prompt_tokens
        record["cached_tokens"] = content.cached_tokens
        record["logprob"] = math.nan if content.logprob is None else content.logprob
        record["top_count"] = len(content.top)
        if content.top:
            tokens, logprobs = zip(*content.top, strict=True)
            record["top_tokens"][: len(tokens)] = tokens
            record["top_logprobs"][: len(tokens)] = logprobs
        record["room"] = content.room

    def read(self, row: int) -> RowContent:
        """What the row says; whether it may be believed is decided by room and generation."""
        record = self._records[row]
        logprob = float(record["logprob"])
        count = max(0, min(int(record["top_count"]), TOP_MAX))
        tokens = record["top_tokens"][:count].tolist()
        logprobs = record["top_logprobs"][:count].tolist()
        return RowContent(
            room=int(record["room"]),
            generation=int(record["generation"]),
            token=int(record["token"]),
            prompt_tokens=int(record["prompt_tokens"]),
            cached_tokens=int(record["cached_tokens"]),
            logprob=None if math.isnan(logprob) else logprob,
            top=tuple(zip(tokens, logprobs, strict=True)),
        )

    def clear(self, row: int) -> None:
        """Zero what makes a row believable."""
        record = self._records[row]
        record["room"] = 0
        record["generation"] = 0
