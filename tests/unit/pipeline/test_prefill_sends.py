"""What prefill sends: page-aligned chunks, an explicit last, the row from its one writer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcluster_api.states import Stage
from pdcluster_worker.pipeline.effects import Discard, FillRow, Launch, Prepare
from pdcluster_worker.wire.local import Tokens
from pdcluster_worker.wire.notice import NoticeKind
from pdcluster_worker.wire.peer import Delivered
from tests.unit.pipeline.rig import PrefillRig, Sizes, computed


@pytest.mark.parametrize("publish_first", [True, False])
def test_both_orders_of_publish_and_request_end_with_the_first_token(publish_first: bool) -> None:
    rig = PrefillRig()
    if publish_first:
        rig.publish(1, 8)
        rig.submit("a", 8, room=1)
    else:
        rig.submit("a", 8, room=1)
        rig.publish(1, 8)
    rig.settle(*computed(rig))
    (message,) = rig.told("a")
    assert isinstance(message, Tokens)
    assert (message.ids, message.finish) == ((5,), "length")
    (figures,) = rig.said(Delivered)
    assert (figures.room, figures.generation, figures.bytes) == (1, 1, 2 + 1)
    assert rig.initial()


def test_f04_pages_of_16_and_chunks_of_40_over_100_tokens_are_sent_page_aligned() -> None:
    rig = PrefillRig(Sizes(page_tokens=16, chunk_tokens=40))
    rig.submit("a", 100, room=1)
    rig.publish(1, 100, first=30)
    writes = [write for write in computed(rig) if write.region == "kv"]
    own = np.concatenate([write.source for write in writes])
    assert [write.target.tolist() for write in writes] == [[30, 31], [32, 33, 34], [35, 36]]
    assert len(set(own.tolist())) == 7
    assert [write.notice.chunk for write in writes] == [0, 1, 2]
    assert [write.notice.pages for write in writes] == [2, 5, 7]
    assert [write.notice.last for write in writes] == [False, False, True]


@settings(deadline=None, max_examples=60)
@given(length=st.integers(1, 120), page=st.integers(1, 24), chunk=st.integers(1, 64))
def test_every_page_is_sent_once_and_only_the_last_chunk_is_marked(
    length: int, page: int, chunk: int
) -> None:
    rig = PrefillRig(Sizes(pages=128, page_tokens=page, chunk_tokens=chunk))
    rig.submit("a", length, room=1)
    publish = rig.publish(1, length)
    writes = computed(rig)
    chunks = [write for write in writes if write.region == "kv"]
    targets = np.concatenate([write.target for write in chunks])
    assert targets.tolist() == np.frombuffer(publish.pages, "<i4").tolist()
    assert [write.notice.chunk for write in chunks] == list(range(len(chunks)))
    assert [write.notice.last for write in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(len(write.source) for write in chunks), "no empty chunk (E30)"
    assert [write.notice.kind for write in writes][-1] is NoticeKind.ROW
    rig.settle(*writes)
    assert rig.initial()


def test_e04_the_row_is_filled_before_it_is_posted_and_names_room_and_generation() -> None:
    """Trigger: pages count as arrived before the metadata row can be read.
    Others: answered with the first token of whoever had the row before.
    Here: the row is a write of its own, posted after the pages, and it names room and generation.
    Bound: a hand-off is complete only with every chunk and the row.
    """
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8, generation=6)
    writes = computed(rig)
    (fill,) = rig.of(FillRow)
    assert (fill.content.room, fill.content.generation, fill.content.token) == (1, 6, 5)
    assert rig.effects.index(fill) < rig.effects.index(writes[-1])
    assert (writes[-1].source.tolist(), writes[-1].target.tolist()) == ([fill.row], [3])


def test_the_last_writes_are_prepared_while_their_chunk_computes() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.tick()
    prepared = [effect.write for effect in rig.of(Prepare)]
    rig.results()
    assert [write.ticket for write in rig.writes()] == [write.ticket for write in prepared]


def test_a_failure_while_computing_discards_what_was_prepared() -> None:
    rig = PrefillRig()
    rig.submit("a", 8, room=1)
    rig.publish(1, 8)
    rig.tick()
    tickets = [effect.write.ticket for effect in rig.of(Prepare)]
    rig.abort("a")
    assert [effect.ticket for effect in rig.of(Discard)] == tickets
    rig.results()
    assert rig.writes() == []
    assert rig.initial()


def test_a_head_that_waits_for_pages_is_not_overtaken() -> None:
    rig = PrefillRig(Sizes(pages=6, chunk_tokens=64))
    for room, length in ((1, 16), (2, 20), (3, 4)):
        rig.submit(f"r{room}", length, room=room)
        rig.publish(room, length)
    rig.tick()
    (launch,) = rig.of(Launch)
    assert len(launch.steps) == 1
    assert rig.pipeline.stages() == {Stage.FORWARD: 1, Stage.WAITING: 2}
