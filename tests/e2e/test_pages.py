"""The pages that decode holds are, byte for byte, those that prefill computed."""

import asyncio
from pathlib import Path

import pytest

from pdcluster_api.names import PORT_BOOTSTRAP
from pdcluster_worker.kv.metadata import ROW_BYTES
from pdcluster_worker.wire.local import Failed, Hop, Tokens
from tests.e2e.pair import Side, pair

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PAGE_BYTES = 4 * 2 * 2 * 16 * 32 * 4  # layers, K and V, heads, tokens, dim, float32
LENGTHS = (1, 15, 16, 17, 127, 128, 129, 300, 1000)


async def hand_off(prefill: Side, decode: Side, prompt: list[int], room: int) -> list[int]:
    """Run both legs; decode's tokens."""
    hop = Hop(host=prefill.settings.pod_ip, port=PORT_BOOTSTRAP, room=room)
    first, answer = await asyncio.gather(
        prefill.ask(f"r{room}", prompt, hop=hop, max_new=8),
        decode.ask(f"r{room}", prompt, hop=hop, max_new=8),
    )
    assert not isinstance(first, Failed), first
    assert not isinstance(answer, Failed), answer
    tokens: list[Tokens] = answer
    for leg in (first, tokens):
        handoff = leg[-1].handoff
        assert handoff is not None
        assert handoff.pages == -(-len(prompt) // 16)
        # On prefill as the transfer library itself counted them: pages and one row, nothing else.
        assert handoff.bytes == handoff.pages * PAGE_BYTES + ROW_BYTES
    return [token for message in tokens for token in message.ids]


async def test_pages_are_equal_and_a_spoilt_page_is_noticed(tmp_path: Path) -> None:
    prompts = {room: [(room * 31 + i) % 240 + 10 for i in range(n)] for room, n in
               enumerate(LENGTHS, start=1)}  # fmt: skip
    async with pair(tmp_path) as (prefill, decode):
        answers = await asyncio.gather(
            *(hand_off(prefill, decode, prompt, room) for room, prompt in prompts.items())
        )
        sent, held = prefill.digests, decode.digests
    assert sent == held
    assert set(sent) == set(prompts)
    assert all(len(answer) == 8 for answer in answers)
    async with pair(tmp_path, spoil=True) as (prefill, decode):
        spoilt = await hand_off(prefill, decode, prompts[9], 9)
        assert prefill.digests[9] != decode.digests[9]
    assert spoilt != answers[-1], "decode does not read the pages it was given"


async def test_e09_other_page_size_fails_the_request_and_both_live_on(tmp_path: Path) -> None:
    async with pair(tmp_path, decode_page_tokens=32) as (prefill, decode):
        for room in (1, 2):
            hop = Hop(host=prefill.settings.pod_ip, port=PORT_BOOTSTRAP, room=room)
            first, answer = await asyncio.gather(
                prefill.ask(f"r{room}", [20] * 40, hop=hop, max_new=4),
                decode.ask(f"r{room}", [20] * 40, hop=hop, max_new=4),
            )
            assert isinstance(answer, Failed)
            assert answer.kind == "peer_incompatible"
            assert "fingerprint differs" in answer.message
            assert isinstance(first, Failed)
            assert first.kind == "peer_refused"
        for side in (prefill, decode):
            assert side.process.returncode is None
            status = await side.link.status(2.0)
            assert status.pages.free == status.pages.total
            assert not status.stages
