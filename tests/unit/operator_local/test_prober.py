"""What a failed probe says."""

import httpx
import pytest

from pdcluster_operator.local.kubelet.pod import ProbeSpec
from pdcluster_operator.local.kubelet.prober import Prober


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"object": "error", "message": "not loaded", "code": 503}', "not loaded"),
        ('{"error": {"message": "not\\nloaded"}}', "not loaded"),
        ('{"error": "plain"}', "plain"),
        ("two\nlines", "two lines"),
        ("", ""),
    ],
)
async def test_an_error_document_is_shown_as_its_message(body: str, expected: str) -> None:
    prober = Prober()
    await prober.close()
    answer = httpx.MockTransport(lambda _: httpx.Response(503, text=body))
    prober._http = httpx.AsyncClient(transport=answer)
    said = await prober.ask(ProbeSpec(http=(1, "/health")), "127.0.0.1")
    assert said == (False, f"/health answered 503 {expected}".strip())
    await prober.close()


async def test_a_port_that_nobody_listens_on_is_said_plainly() -> None:
    prober = Prober()
    said = await prober.ask(ProbeSpec(http=(1, "/health")), "127.0.0.1")
    assert said == (False, "/health does not answer yet")
    await prober.close()
