"""Notices are fixed-size and refuse what is none of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.errors import WireError
from pdcluster_worker.wire.notice import NOTICE_BYTES, Notice, NoticeKind, unpack

HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
NOTICES = st.builds(
    Notice,
    kind=st.sampled_from(NoticeKind),
    writer=HEX,
    reader=HEX,
    room=U64,
    generation=U64,
    source=st.integers(0, 2**16 - 1),
    chunk=U32,
    pages=U32,
    last=st.booleans(),
)


@given(NOTICES)
def test_round_trip(notice: Notice) -> None:
    data = notice.pack()
    assert len(data) == NOTICE_BYTES
    assert unpack(data) == notice


@given(st.binary(max_size=2 * NOTICE_BYTES))
def test_garbage_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(data)


def test_an_unknown_kind_is_a_wire_error() -> None:
    data = bytearray(Notice(kind=NoticeKind.ROW, writer="00" * 16, reader="11" * 16).pack())
    data[4] = 77
    with pytest.raises(WireError, match="unknown kind 77"):
        unpack(bytes(data))
