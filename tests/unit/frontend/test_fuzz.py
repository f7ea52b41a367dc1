"""Whatever a client sends, the answer is 200 or a 4xx with an error body: no 500, no hang."""

import json
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcluster_api.names import Role
from pdcluster_worker.frontend.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    GENERATE_FIELDS,
    IGNORED,
    Field,
)
from pdcluster_worker.frontend.params import Params
from tests.unit.frontend.fakes import FakeLink, client

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
TABLES: dict[str, tuple[tuple[Field, ...], dict[str, Any]]] = {
    "/v1/chat/completions": (CHAT_FIELDS, {"messages": [{"role": "user", "content": "x"}]}),
    "/v1/completions": (COMPLETION_FIELDS, {"prompt": "x"}),
    "/generate": (GENERATE_FIELDS, {"text": "x"}),
}


def bodies(fields: tuple[Field, ...], base: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    heads = sorted({field.name.partition(".")[0] for field in fields})
    inner = sorted({field.name.partition(".")[2] for field in fields} - {""})
    values = JSON | st.dictionaries(st.sampled_from(inner), JSON, max_size=3)
    return st.dictionaries(st.sampled_from(heads), values, max_size=3).map(lambda d: base | d)


async def check(http: httpx.AsyncClient, path: str, body: bytes) -> None:
    response = await http.post(path, content=body)
    assert response.status_code == 200 or 400 <= response.status_code < 500, response.text
    if response.status_code != 200:
        assert "message" in response.text


@settings(max_examples=150, deadline=None)
@given(st.data())
async def test_any_value_in_any_field(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(TABLES)))
    body = data.draw(bodies(*TABLES[path]))
    role = data.draw(st.sampled_from(Role))
    async with client(FakeLink(), role) as http:
        await check(http, path, json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TABLES)), st.binary(max_size=60))
async def test_any_bytes(path: str, body: bytes) -> None:
    async with client(FakeLink()) as http:
        await check(http, path, body)


@given(st.sampled_from([f for t, _ in TABLES.values() for f in t]), JSON)
def test_a_reader_converts_or_says_what_is_allowed(field: Field, value: object) -> None:
    try:
        converted = field.read(value)
    except ValueError as error:
        said = str(error)
    else:
        said = "fine"
        assert field.to == IGNORED or field.to in Params.__struct_fields__
        assert field.to == IGNORED or converted is not None
    assert said
