"""Health, model, settings, load, metrics."""

from typing import Any

import pytest

from pdcluster_api.names import Role
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.frontend.routes import ENDPOINTS
from tests.unit.frontend.fakes import FakeLink, client


async def get(path: str, link: FakeLink | None = None, role: Role = Role.AGGREGATED) -> Any:
    async with client(link or FakeLink(), role) as http:
        return await http.get(path)


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_health(path: str) -> None:
    assert (await get(path)).status_code == 200


async def test_models() -> None:
    body = (await get("/v1/models")).json()
    assert body["object"] == "list"
    (model,) = body["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 1000)


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
async def test_model_info(path: str) -> None:
    body = (await get(path)).json()
    assert body["model_path"] == "tiny://llama?seed=0"
    assert body["served_model_name"] == "tiny"
    assert body["is_generation"] is True


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
@pytest.mark.parametrize(
    ("role", "mode"),
    [(Role.PREFILL, "prefill"), (Role.DECODE, "decode"), (Role.AGGREGATED, "null")],
)
async def test_server_info(path: str, role: Role, mode: str) -> None:
    body = (await get(path, role=role)).json()
    assert body["disaggregation_mode"] == mode
    assert body["disaggregation_bootstrap_port"] == 8998
    assert body["internal_states"][0]["instance"] == "i-1"


async def test_loads() -> None:
    body = (await get("/v1/loads")).json()
    (load,) = body["loads"]
    assert load["num_running_reqs"] == 3
    assert load["num_waiting_reqs"] == 2
    assert load["num_used_tokens"] == 4 * 16
    assert load["disaggregation"]["decode_transfer_queue_reqs"] == 2
    assert load["disaggregation"]["kv_transfer_speed_gb_s"] == 2.0
    assert body["pdcluster"]["stages"] == {"transfer": 2, "running": 3}


async def test_loads_of_a_silent_scheduler() -> None:
    link = FakeLink()
    link.silent = True
    assert (await get("/v1/loads", link)).status_code == 503


@pytest.mark.parametrize("silent", [False, True])
async def test_metrics(silent: bool) -> None:
    link = FakeLink()
    link.silent = silent
    async with client(link) as http:
        await http.post("/generate", json={"text": "x"})
        await http.post("/generate", json={"text": 1})
        text = (await http.get("/metrics")).text
    assert ("pdcluster_output_tokens_total 5.0" in text) is not silent
    assert f"pdcluster_scheduler_up {0 if silent else 1}.0" in text
    assert 'pdcluster_http_requests_total{code="200",path="/generate"} 1.0' in text
    assert 'pdcluster_http_requests_total{code="400",path="/generate"} 1.0' in text
    assert 'pdcluster_generations_total{outcome="finished"} 1.0' in text
    assert "pdcluster_time_to_first_token_seconds_count 1.0" in text
    assert "pdcluster_inter_token_seconds_count 4.0" in text
    assert "pdcluster_http_live_requests 0.0" in text


def test_tables_are_whole() -> None:
    assert len({endpoint.path for endpoint in ENDPOINTS}) == len(ENDPOINTS)
    attributes = {*Params.__struct_fields__, ""}
    for endpoint in ENDPOINTS:
        assert endpoint.doc
        names = [field.name for field in endpoint.fields]
        assert len(set(names)) == len(names)
        for field in endpoint.fields:
            assert field.to in attributes
            assert field.doc
            assert field.read.shown
