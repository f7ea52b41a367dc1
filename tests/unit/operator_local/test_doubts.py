"""A worker that counts as ready is asked once more before a person is told so."""

from collections.abc import Callable

import httpx
import pytest

from pdcluster_operator.local.doubts import doubted, find_doubts
from pdcluster_operator.local.kubelet import PodRecord


def pod(name: str, *, ready: bool = True) -> PodRecord:
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"podIP": "127.0.0.1", "conditions": conditions}
    return PodRecord({"metadata": {"name": name, "uid": name}}, status=status)


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def dawdle(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("busy", request=request)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refuse, "worker: does not answer any more"),
        (lambda _: httpx.Response(503), "worker: /health answers 503 now"),
        (lambda _: httpx.Response(200), None),
        (dawdle, None),
    ],
)
async def test_only_a_definite_refusal_is_a_doubt(
    answer: Callable[[httpx.Request], httpx.Response], expected: str | None
) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        found = await find_doubts(client, [pod("a"), pod("b", ready=False)])
    assert found == ({} if expected is None else {"a": expected})


def test_a_doubted_pod_is_shown_as_not_ready() -> None:
    pods = [{"name": "a", "ready": True, "message": ""}, {"name": "b", "ready": True}]
    shown = doubted(pods, {"a": "why"})
    assert shown == [{"name": "a", "ready": False, "message": "why"}, pods[1]]
