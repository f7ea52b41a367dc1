"""Control frames between workers, over ZMQ PUSH -> PULL (tcp).

    decode  -> prefill   Hello, Publish, Abort
    prefill -> decode    Welcome | Unwelcome, Refused, AbortAck, Delivered, Rejoin
    both                 Alive (heartbeat, and the rooms that are queued, not dead), Bye

A frame is ``MAGIC + version byte + tag + msgpack(Envelope)``. The tag is a keyed hash of the rest
under the cluster's shared token: the token itself never travels, since a client chooses the address
that decode greets. The envelope names the cluster, its sender's instance and the instance it is
meant for: a process restarted behind the same address never acts on its predecessor's frames.
Whatever does not fit is a `WireError`: the reader drops and counts it.
"""

import hashlib
import hmac
from typing import Annotated

import msgspec

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.core.ports import Region, TransferPeer

MAGIC = b"PDC"
VERSION = 1
HEADER = MAGIC + bytes([VERSION])
TAG_BYTES = 16

Room = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]

RoomKey = tuple[Room, Generation]


class WireRegion(msgspec.Struct, frozen=True, array_like=True):
    """`core.ports.Region` on the wire."""

    name: str
    address: int
    item_bytes: int
    items: int
    kind: str
    device: int


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """Who a worker is and how to write into its memory."""

    role: str
    pod_uid: str
    host: str  # where its control socket listens
    port: Port
    fingerprint: str  # KV geometry; unequal means no page is ever exchanged (E8, E9)
    schema: str  # metadata row layout (E4c)
    transport: str  # settings of the transfer library that both sides must share
    agent: str
    metadata: bytes
    regions: tuple[WireRegion, ...]

    def peer(self) -> TransferPeer:
        """What the transport needs."""
        regions = tuple(
            Region(
                name=r.name,
                address=r.address,
                item_bytes=r.item_bytes,
                items=r.items,
                kind=r.kind,
                device=r.device,
            )
            for r in self.regions
        )
        return TransferPeer(agent=self.agent, metadata=self.metadata, regions=regions)


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Decode introduces itself; sent again until answered."""

    intro: Introduction


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill accepts and introduces itself; both then write one warm-up row."""

    intro: Introduction


class Unwelcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill refuses the peer: incompatible."""

    kind: str
    message: str


class Rejoin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill has no working connection to this decode any more: say Hello again."""


class Publish(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Decode gives pages for one room. It is the permission to write, until Abort or commit."""

    room: Room
    generation: Generation  # of this decode instance; never reused
    pages: bytes  # int32 destination pages, for page indices start_page, start_page+1, ...
    start_page: Count  # pages below are already on decode (prefix)
    row: Count  # metadata row
    prompt_tokens: Count  # both legs must have tokenized alike
    digest: bytes  # of the prompt: equal rooms alone do not prove that the legs belong together


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Decode ends a room. ``generation`` 0: nothing was published for it."""

    room: Room
    generation: Generation
    kind: str
    message: str


class AbortAck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill proves that it will not write for this room and generation any more."""

    room: Room
    generation: Generation


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill ends a room. ``quiescent``: no write for it is or will be under way."""

    room: Room
    generation: Generation
    kind: str
    message: str
    quiescent: bool


class Delivered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefill's account of a settled hand-off; for figures only, nothing waits for it."""

    room: Room
    generation: Generation
    bytes: int
    descriptors: Count
    seconds: float


class Alive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Heartbeat; ``rooms`` are held by the sender and waiting there, not lost (E57)."""

    rooms: tuple[RoomKey, ...] = ()
    draining: bool = False


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The sender ends now and will not write any more."""


Body = (
    Hello | Welcome | Unwelcome | Rejoin | Publish | Abort | AbortAck | Refused | Delivered
    | Alive | Bye
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Addressing and authentication around every body."""

    cluster: str
    sender: str  # instance
    receiver: str  # instance; empty where the sender cannot know it yet
    body: Body


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


class FrameCodec:
    """Makes and checks frames of one worker."""

    def __init__(self, *, cluster: str, token: str, instance: str, frame_bytes_max: int) -> None:
        self._cluster = cluster
        self._key = hashlib.blake2b(token.encode(), digest_size=32).digest()
        self._instance = instance
        self._bytes_max = frame_bytes_max

    def encode(self, body: Body, *, receiver: str) -> bytes:
        """One frame. Raises WireError when it would exceed the limit."""
        payload = _encoder.encode(Envelope(self._cluster, self._instance, receiver, body))
        frame = HEADER + self._tag(payload) + payload
        if len(frame) > self._bytes_max:
            raise WireError(f"frame of {len(frame)} bytes exceeds {self._bytes_max}")
        return frame

    def decode(self, frame: bytes) -> tuple[str, Body]:
        """``(sender instance, body)``. Raises WireError, whatever the bytes are."""
        if len(frame) > self._bytes_max:
            raise WireError(f"frame of {len(frame)} bytes exceeds {self._bytes_max}")
        if frame[: len(MAGIC)] != MAGIC:
            raise WireError("not a pdcluster frame")
        if frame[: len(HEADER)] != HEADER:
            raise WireError(f"protocol version {frame[3:4].hex()} is not {VERSION:02x}")
        tag, payload = frame[len(HEADER) :][:TAG_BYTES], frame[len(HEADER) + TAG_BYTES :]
        if not hmac.compare_digest(tag, self._tag(payload)):
            raise WireError("frame with a wrong token")
        try:
            envelope = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"malformed frame: {error}") from None
        if envelope.cluster != self._cluster:
            raise WireError("frame of another cluster")
        if envelope.receiver and envelope.receiver != self._instance:
            raise WireError("frame for another instance")
        return envelope.sender, envelope.body

    def _tag(self, payload: bytes) -> bytes:
        return hashlib.blake2b(payload, key=self._key, digest_size=TAG_BYTES).digest()
