"""Control frames: what fits is read back, what does not is a WireError and nothing else (E38)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.wire.peer import (
    HEADER,
    TAG_BYTES,
    Abort,
    AbortAck,
    Alive,
    Body,
    Bye,
    Delivered,
    FrameCodec,
    Hello,
    Introduction,
    Publish,
    Refused,
    Rejoin,
    Unwelcome,
    Welcome,
    WireRegion,
)

INTRO = Introduction(
    role="decode", pod_uid="u", host="127.0.0.1", port=1, fingerprint="f", schema="s",
    transport="t", agent="a", metadata=b"\x00\xff", regions=(
        WireRegion("kv", 2**63, 4096, 8, "DRAM", 0),
    ),
)  # fmt: skip
BODIES: tuple[Body, ...] = (
    Hello(intro=INTRO),
    Welcome(intro=INTRO),
    Unwelcome(kind="k", message="m"),
    Rejoin(),
    Publish(room=2**63 - 1, generation=1, pages=b"\x01\x00\x00\x00", start_page=0, row=1,
            prompt_tokens=3, digest=b"d"),
    Abort(room=1, generation=0, kind="k", message="m"),
    AbortAck(room=1, generation=2),
    Refused(room=1, generation=2, kind="k", message="m", quiescent=True),
    Delivered(room=1, generation=2, bytes=3, descriptors=4, seconds=0.5),
    Alive(rooms=((1, 2), (3, 4)), draining=True),
    Bye(),
)  # fmt: skip


def codec(**changes: object) -> FrameCodec:
    """Of one worker."""
    fields: dict[str, object] = {
        "cluster": "ns/c", "token": "secret", "instance": "me", "frame_bytes_max": 8192,
    }  # fmt: skip
    return FrameCodec(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_body_survives(body: Body) -> None:
    frame = codec().encode(body, receiver="you")
    assert codec(instance="you").decode(frame) == ("me", body)


def test_all_bodies_are_tried() -> None:
    assert {type(body) for body in BODIES} == set(Body.__args__)


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (codec(instance="other"), "another instance"),
        (codec(instance="you", cluster="ns/d"), "another cluster"),
        (codec(instance="you", token="guess"), "wrong token"),
        (codec(instance="you", frame_bytes_max=64), "exceeds 64"),
    ],
)
def test_foreign_frames_are_refused(reader: FrameCodec, reason: str) -> None:
    frame = codec().encode(BODIES[4], receiver="you")
    with pytest.raises(WireError, match=reason):
        reader.decode(frame)


def test_e53_a_frame_for_the_former_process_is_not_acted_upon() -> None:
    frame = codec().encode(Abort(room=1, generation=1, kind="k", message="m"), receiver="former")
    with pytest.raises(WireError, match="another instance"):
        codec(instance="successor").decode(frame)


def test_another_version_is_named() -> None:
    frame = bytearray(codec().encode(Bye(), receiver=""))
    frame[3] = 9
    with pytest.raises(WireError, match="version 09"):
        codec().decode(bytes(frame))


def test_the_token_does_not_travel() -> None:
    for body in BODIES:
        assert b"secret" not in codec().encode(body, receiver="you")


def test_a_frame_over_the_limit_is_not_made() -> None:
    with pytest.raises(WireError, match="exceeds"):
        codec(frame_bytes_max=64).encode(BODIES[4], receiver="you")


@given(st.binary(max_size=300))
def test_garbage_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        codec().decode(data)


@given(index=st.integers(0, len(BODIES) - 1), data=st.data())
def test_a_changed_byte_is_a_wire_error(index: int, data: st.DataObject) -> None:
    frame = bytearray(codec().encode(BODIES[index], receiver="me"))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        codec().decode(bytes(frame))


@given(index=st.integers(0, len(BODIES) - 1), data=st.data())
def test_a_cut_frame_is_a_wire_error(index: int, data: st.DataObject) -> None:
    frame = codec().encode(BODIES[index], receiver="me")
    with pytest.raises(WireError):
        codec().decode(frame[: data.draw(st.integers(0, len(frame) - 1))])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_well_signed_nonsense_is_a_wire_error(payload: object) -> None:
    """What a peer of a broken version could send with the right token."""
    own = codec()
    packed = msgspec.msgpack.encode(payload)
    signed = own.encode(Bye(), receiver="me")
    tag = own._tag(packed)
    assert len(tag) == TAG_BYTES
    assert signed.startswith(HEADER)
    with pytest.raises(WireError):
        own.decode(HEADER + tag + packed)
