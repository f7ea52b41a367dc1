"""The bootstrap server's HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.rendezvous.messages import RANK_PARAMETERS
from pdcluster_worker.rendezvous.server import BODY_BYTES_MAX, BootstrapServer
from tests.unit.rendezvous.rows import row

ROW = msgspec.to_builtins(row())
ALL = dict.fromkeys(RANK_PARAMETERS, -1)
FIRST = dict.fromkeys(RANK_PARAMETERS, 0)


def connect(token: str = "") -> httpx.AsyncClient:
    app = BootstrapServer(SystemClock(), token=token).app()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://b")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with connect() as client:
        yield client


async def test_register_then_topology_then_row(http: httpx.AsyncClient) -> None:
    response = await http.get("/route", params=ALL)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert (await http.get("/route", params=FIRST)).status_code == 503
    response = await http.put("/route", json=ROW | {"something_new": 1})
    assert (response.status_code, response.text) == (200, "OK")
    topology = (await http.get("/route", params=ALL)).json()
    assert topology["page_size"] == 16
    assert topology["follow_bootstrap_room"] is True
    assert topology["rows"] == [ROW]
    found = (await http.get("/route", params=FIRST)).json()
    assert (found["rank_ip"], found["rank_port"]) == ("10.0.0.1", 8997)
    assert (await http.get("/route", params=FIRST | {"target_tp_rank": 1})).status_code == 404


@pytest.mark.parametrize("name", RANK_PARAMETERS)
@pytest.mark.parametrize("value", [None, "", "x", "-2", "1.5", "9" * 30, "٣"])
async def test_bad_parameters(http: httpx.AsyncClient, name: str, value: str | None) -> None:
    parameters = {key: str(rank) for key, rank in FIRST.items()}
    del parameters[name]
    if value is not None:
        parameters[name] = value
    response = await http.get("/route", params=parameters)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"instance": ""}, "instance"),
        ({"instance": 5}, "instance"),
        ({"pod_uid": None}, "pod_uid"),
        ({"peer_port": 0}, "peer_port"),
        ({"peer_port": 65536}, "peer_port"),
        ({"peer_port": "8997"}, "peer_port"),
        ({"page_size": 0}, "page_size"),
        ({"attn_tp_size": 2**40}, "attn_tp_size"),
        ({"attn_tp_rank": 1}, "attn_tp_rank"),
        ({"fingerprint": "x" * 300}, "fingerprint"),
    ],
)
async def test_bad_rows(http: httpx.AsyncClient, change: dict[str, Any], field: str) -> None:
    response = await http.put("/route", json=ROW | change)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


async def test_a_conflict_names_the_field(http: httpx.AsyncClient) -> None:
    await http.put("/route", json=ROW | {"attn_tp_size": 2})
    response = await http.put(
        "/route", json=ROW | {"attn_tp_size": 2, "attn_tp_rank": 1, "page_size": 32}
    )
    assert response.status_code == 409
    assert "page_size" in response.text


async def test_e68_writing_needs_the_token() -> None:
    """Trigger: a stranger registers at the bootstrap server.
    Others: took any row, and sent decode wherever it said.
    Here: writing needs the cluster's token where one is set; a row that disagrees is a 409.
    Bound: at once.
    """
    async with connect("s3cret") as http:
        tries: list[dict[str, Any]] = [
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": b"\xff"},
        ]
        for headers in tries:
            response = await http.put("/route", json=ROW, headers=headers)
            assert response.status_code == 401
            room = {"bootstrap_room": 1, "dp_rank": 0}
            response = await http.post("/register_dp_rank", json=room, headers=headers)
            assert response.status_code == 401
        assert (await http.get("/route", params=ALL)).status_code == 503
        allowed = {"Authorization": "Bearer s3cret"}
        assert (await http.put("/route", json=ROW, headers=allowed)).status_code == 200
        assert (await http.get("/route", params=ALL)).status_code == 200


async def test_rooms(http: httpx.AsyncClient) -> None:
    room = {"bootstrap_room": 7, "dp_rank": 3}
    assert (await http.post("/register_dp_rank", json=room)).text == "OK"
    response = await http.post("/query_dp_ranks", json={"bootstrap_rooms": [7, 8]})
    assert response.json() == {"7": 3}
    for bad in ({"bootstrap_rooms": [0]}, {"bootstrap_rooms": list(range(1, 5000))}, {}):
        assert (await http.post("/query_dp_ranks", json=bad)).status_code == 400


async def test_methods_and_size(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).text == "OK"
    assert (await http.post("/route")).status_code == 405
    assert (await http.delete("/route")).status_code == 405
    assert (await http.get("/register_dp_rank")).status_code == 405
    assert (await http.put("/route", content=b"x" * (BODY_BYTES_MAX + 1))).status_code == 413


VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=300)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["/route", "/register_dp_rank", "/query_dp_ranks"]),
    st.binary(max_size=50)
    | st.dictionaries(
        st.sampled_from([*ROW, "bootstrap_room", "dp_rank", "bootstrap_rooms"]), VALUES
    ).map(lambda change: json.dumps(ROW | change).encode()),
)
async def test_any_body(path: str, body: bytes) -> None:
    async with connect() as http:
        method = "PUT" if path == "/route" else "POST"
        response = await http.request(method, path, content=body)
        assert response.status_code in (200, 400)
        assert (await http.get("/route", params=ALL)).status_code in (200, 503)
