"""A local cluster of scripted workers behind the real router, as `pdcluster up` runs it."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from pdcluster_operator.cli.ask import Question, ask
from pdcluster_operator.clock import SystemClock
from pdcluster_operator.local.session import Session
from pdcluster_operator.spec import read_cluster
from tests.wiring.cluster_rig import QUICK, rig_settings, scripted_cluster, scripted_document
from tests.wiring.kubelet_rig import NETWORK, PYTHON, REPOSITORY, until

pytestmark = pytest.mark.real

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    cluster = scripted_cluster("wiring", prefill=2, decode=1)
    async with Session(cluster, rig_settings(tmp_path), QUICK) as running:
        async with asyncio.timeout(30):
            await running.serving()
        yield running


def pods(session: Session, role: str) -> list[dict[str, Any]]:
    return [pod for pod in session.snapshot()["pods"] if pod["role"] == role]


def kill(session: Session, pod: dict[str, Any], container: str) -> None:
    """SIGKILL one container's first process, as an accident would."""
    uid = next(record.uid for record in session._pods.records() if record.name == pod["name"])
    os.kill(session._kubelet.sessions(uid)[container], signal.SIGKILL)


async def chat(client: httpx.AsyncClient, endpoint: str) -> httpx.Response:
    return await client.post(f"{endpoint}/v1/chat/completions", json=CHAT, timeout=20)


async def test_requests_are_answered_and_say_what_the_hand_off_cost(session: Session) -> None:
    heard: list[str] = []
    question = Question(text="hi", model="scripted")
    answer = await ask(session.endpoint, question, clock=SystemClock(), on_text=heard.append)
    assert answer.text == "".join(heard) == "KV moves between two processes."
    assert answer.handoff["pages"] == 3
    assert answer.usage["completion_tokens"] == 6
    async with httpx.AsyncClient(trust_env=False) as client:
        (decode,) = pods(session, "decode")
        asked = (await client.get(f"http://{decode['ip']}:8000/scripted/requests")).json()
    last = asked[-1]
    assert last["return_handoff"] is True
    assert last["bootstrap_host"] in {pod["ip"] for pod in pods(session, "prefill")}
    assert last["bootstrap_port"] == 8998
    assert last["bootstrap_room"] > 0


async def test_a_restarted_router_gets_its_workers_back(session: Session) -> None:
    (router,) = pods(session, "router")
    kill(session, router, "router")
    await until(lambda: pods(session, "router")[0]["restarts"] == 1)
    assert session.phase == "degraded"
    await until(lambda: session.phase == "serving")
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await chat(client, session.endpoint)).status_code == 200


async def test_a_restarted_registrar_remembers_and_disturbs_nobody(session: Session) -> None:
    (router,) = pods(session, "router")
    kill(session, router, "registrar")
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(5):
            assert (await chat(client, session.endpoint)).status_code == 200
    await until(lambda: pods(session, "router")[0]["restarts"] == 1)
    await until(lambda: session.phase == "serving")


async def test_a_killed_worker_comes_back_and_the_other_serves_meanwhile(session: Session) -> None:
    victim = pods(session, "prefill")[0]
    kill(session, victim, "worker")
    async with httpx.AsyncClient(trust_env=False) as client:
        codes = [(await chat(client, session.endpoint)).status_code for _ in range(10)]
        # The router does not retry a refused connection; it takes the worker out after the first.
        assert codes.count(200) >= 8
        assert set(codes) <= {200, 502}
    await until(lambda: pods(session, "prefill")[0]["restarts"] == 1)
    await until(lambda: session.phase == "serving")
    assert pods(session, "prefill")[0]["ip"] == victim["ip"]


async def test_it_is_not_ready_before_a_request_was_answered(tmp_path: Path) -> None:
    """Healthy in the router is not enough: here decode answers every request with 503."""
    document = scripted_document("unready")
    worker = document["spec"]["decode"]["podTemplate"]["spec"]["containers"][0]
    worker["env"] = [{"name": "SCRIPTED_CHAT", "value": "503"}]
    cluster = read_cluster(document)
    async with Session(cluster, rig_settings(tmp_path), QUICK) as session:
        await until(lambda: "no request was answered yet" in session.snapshot()["reason"])
        assert session.snapshot()["routable"] == {"prefill": 1, "decode": 1}
        assert not pods(session, "router")[0]["ready"]
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"http://{pods(session, 'decode')[0]['ip']}:8000/scripted/behaviour"
            await client.post(url, json={"chat": 200})
        await until(lambda: session.phase == "serving")


async def test_what_is_awaited_is_said_in_counts_and_a_dead_worker_by_its_last_error(
    tmp_path: Path,
) -> None:
    document = scripted_document("broken")
    template = document["spec"]["prefill"]["podTemplate"]["spec"]
    code = "import sys, time; print('ERROR no config.json'); print('INFO bye'); sys.exit(3)"
    template["containers"] = [{"name": "worker", "command": ["python", "-S", "-c", code]}]
    async with Session(read_cluster(document), rig_settings(tmp_path), QUICK) as session:
        await until(lambda: pods(session, "decode")[0]["ready"])
        expected = "waiting for the first pair: prefill 0/1 ready, decode 1/1 ready"
        assert session.snapshot()["reason"] == expected
        await until(session.hopeless)
        assert session.hopeless().startswith(
            "broken-prefill-0: worker: exit code 3: ERROR no config.json (after "
        )


async def test_a_killed_worker_is_not_ready_and_says_why_until_it_is_back(session: Session) -> None:
    (victim,) = pods(session, "decode")
    kill(session, victim, "worker")
    seen: list[dict[str, Any]] = []

    def back() -> bool:
        (now,) = pods(session, "decode")
        seen.append(now)
        return bool(now["ready"] and now["restarts"])

    await until(back)
    assert not any(now["ready"] for now in seen if now["phase"] != "Running")
    unready = [now for now in seen if not now["ready"]]
    assert unready
    assert all("killed by SIGKILL" in now["message"] for now in unready)
    first = seen.index(unready[0])
    assert not any(now["ready"] for now in seen[first:-1])


async def test_status_asks_once_more_before_it_calls_a_worker_ready(session: Session) -> None:
    (victim,) = pods(session, "decode")
    control = json.loads((session.rundir.path / "run.json").read_text())["control"]
    transport = httpx.AsyncHTTPTransport(uds=control)
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        httpx.AsyncClient(transport=transport, base_url="http://pdcluster") as asking,
    ):
        url = f"http://{victim['ip']}:8000/scripted/behaviour"
        await client.post(url, json={"health": 503})
        shown = (await asking.get("/status")).json()
        await client.post(url, json={"health": 200})
    assert not next(pod for pod in shown["pods"] if pod["name"] == victim["name"])["ready"]
    assert (shown["phase"], shown["reason"]) == (
        "degraded",
        "workers are missing: prefill 2/2 ready, decode 0/1 ready",
    )


async def test_stopping_drains_and_stopping_again_ends_at_once(tmp_path: Path) -> None:
    async with Session(scripted_cluster("stop"), rig_settings(tmp_path), QUICK) as session:
        await session.serving()
        address = pods(session, "decode")[0]["ip"]
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(f"http://{address}:8000/scripted/behaviour", json={"delay_s": 1.0})
            slow = asyncio.create_task(chat(client, session.endpoint))
            await asyncio.sleep(0.3)
            session.stop()
            assert (await slow).status_code == 200
            async with asyncio.timeout(20):
                await session.ended()


async def test_nothing_survives_a_killed_up(tmp_path: Path) -> None:
    manifest = tmp_path / "c.yaml"
    manifest.write_text(yaml.safe_dump(scripted_document("killed")))
    state = tmp_path / "state"
    environ = {
        **os.environ,
        "PYTHONPATH": "api:operator:.",
        "PDCLUSTER_STATE_DIR": str(state),
        "PDCLUSTER_LOCAL_RANGE": NETWORK,
    }

    def pdcluster(*args: str) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-m", "pdcluster_operator.cli", *args]
        return subprocess.run(
            command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False
        )

    with ThreadPoolExecutor(2) as both:  # a race: one wins, the other does it no harm
        starts = list(both.map(pdcluster, *zip(*[("up", "-d", str(manifest))] * 2, strict=True)))
    pid = yaml.safe_load((state / "killed/run.json").read_text())["pid"]
    try:
        won, lost = sorted(starts, key=lambda done: done.returncode)
        assert (won.returncode, lost.returncode) == (0, 1)
        assert lost.stderr.startswith("error: killed runs already")
        await until(lambda: "killed is serving" in (state / "killed/up.log").read_text())
        assert [path.name for path in (state / "killed").glob("up.log*")] == ["up.log"]
        said = pdcluster("generate", "hi")
        assert said.stdout.startswith("KV moves between two processes.")
        assert "bytes handed over" in said.stdout
        children = descendants(pid)
        assert len(children) >= 7  # two workers, two sidecars, router, registrar, reaper
    finally:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 5)
    assert pdcluster("status").returncode == 1


def descendants(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [pid for child in children for pid in (int(child), *descendants(int(child)))]
