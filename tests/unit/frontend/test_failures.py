"""What a request may say is settled before the scheduler hears of it."""

from typing import Any

import pytest

from pdcluster_api.names import Role
from pdcluster_worker.frontend.fields import LOGPROBS_MAX
from pdcluster_worker.kv.metadata import TOP_MAX
from tests.unit.frontend.fakes import LEG, FakeLink, answer, client

PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/completions": {"prompt": "x"},
    "/generate": {"text": "x"},
}


async def post(
    path: str, change: dict[str, Any], *, link: FakeLink, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Status, and the field that is named."""
    async with client(link, Role.DECODE) as http:
        response = await http.post(path, json=PATHS[path] | LEG | change, headers=headers)
    body = response.json()
    return response.status_code, str(body.get("param", body.get("error", body).get("param")))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank"])
async def test_e60_a_rank_that_is_not_there_is_refused_and_not_guessed(
    path: str, name: str
) -> None:
    """Trigger: a router names a data-parallel rank that this worker or its prefill has not.
    Others: the legs chose ranks by themselves, differed, and waited for each other.
    Here: a worker is one rank; any other number is a 400 on either leg, in the body or a header.
    Bound: at once, before the scheduler hears of it.
    """
    link = FakeLink()
    for rank in (1, -1, "0"):
        assert await post(path, {name: rank}, link=link) == (400, name)
    if name != "data_parallel_rank":
        headers = {f"x-override-{name.replace('_', '-')}": "1"}
        assert (await post(path, {}, link=link, headers=headers))[0] == 400
    assert link.submitted == []
    for right in (0, None):
        assert (await post(path, {name: right}, link=link))[0] == 200
    assert len(link.submitted) == 2


@pytest.mark.parametrize("path", PATHS)
async def test_e74_requests_with_and_without_a_priority_are_served_alike(path: str) -> None:
    """Trigger: one request states a priority, another does not.
    Others: a number was compared with nothing, and the sort ended the scheduler.
    Here: a priority is accepted and never reaches the queues: they are first come, first served.
    Bound: none needed.
    """
    link = FakeLink()
    for priority in (3, None, -7):
        assert (await post(path, {"priority": priority}, link=link))[0] == 200
    assert (await post(path, {}, link=link))[0] == 200
    assert (await post(path, {"priority": "high"}, link=link)) == (400, "priority")
    assert len(link.submitted) == 4
    assert len({(s.sampling.max_new_tokens, s.sampling.temperature) for s in link.submitted}) == 1


TOP = {
    "/v1/chat/completions": ("top_logprobs", {"logprobs": True}),
    "/v1/completions": ("logprobs", {}),
    "/generate": ("top_logprobs_num", {"return_logprob": True}),
}


@pytest.mark.parametrize("path", PATHS)
async def test_e76_more_logprobs_than_a_row_holds_are_refused_at_once(path: str) -> None:
    """Trigger: a client asks for more logprobs of each token than a metadata row has room for.
    Others: writing the row raised in the scheduler, after the whole prompt had been computed.
    Here: the limit of the field is that of the row; more is a 400 that names the field.
    Bound: 128 a token.
    """
    assert LOGPROBS_MAX == TOP_MAX
    name, also = TOP[path]
    link = FakeLink(lambda submit: answer(submit, "x"))
    assert await post(path, also | {name: TOP_MAX + 1}, link=link) == (400, name)
    assert link.submitted == []
    assert (await post(path, also | {name: TOP_MAX}, link=link))[0] == 200
    assert link.submitted[0].sampling.logprobs == TOP_MAX
