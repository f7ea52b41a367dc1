"""Bounded msgpack for the messages inside one pod (`wire.local`).

Both directions have a size limit, and everything that does not fit is a `WireError`: the reader
drops and counts it, whatever a stranger wrote to the socket.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.wire.local import Answer, Ask, ToFrontend, ToScheduler

T = TypeVar("T")

# The largest message is a Submit with the tokens of one HTTP body (8 MiB of JSON by default, at
# least two bytes a token, four bytes each here).
LOCAL_BYTES_MAX: Final = 32 << 20

_encoder = msgspec.msgpack.Encoder()


class Reader(Generic[T]):
    """Decodes one kind of message. ``kind`` is a struct or a union of tagged structs."""

    def __init__(self, kind: Any, *, bytes_max: int = LOCAL_BYTES_MAX) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._bytes_max = bytes_max

    def read(self, frame: bytes | memoryview) -> T:
        """Raise WireError for a frame that is too large, malformed or of another kind."""
        size = len(frame)
        if size > self._bytes_max:
            raise WireError(f"message of {size} bytes, at most {self._bytes_max}")
        try:
            return self._decoder.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"message does not decode: {error}") from error


def write(message: msgspec.Struct, *, bytes_max: int = LOCAL_BYTES_MAX) -> bytes:
    """Encode a message; WireError when it is larger than any reader takes."""
    frame = _encoder.encode(message)
    if len(frame) > bytes_max:
        raise WireError(f"message of {len(frame)} bytes, at most {bytes_max}")
    return frame


to_scheduler: Reader[ToScheduler] = Reader(ToScheduler)
to_frontend: Reader[ToFrontend] = Reader(ToFrontend)
ask: Reader[Ask] = Reader(Ask, bytes_max=4096)
answer: Reader[Answer] = Reader(Answer)
