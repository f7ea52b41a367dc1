"""The sidecar's servers against a scripted status socket."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
import zmq
import zmq.asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pdcluster_api.control.v1 import control_pb2 as pb
from pdcluster_api.control.v1 import control_pb2_grpc as pb_grpc
from pdcluster_api.names import ENV_LAUNCH, ENV_POD_NAME, ENV_POD_UID, ENV_RUN_DIR, ENV_TOKEN_FILE
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.settings import Settings, load
from pdcluster_worker.sidecar.server import Ports, sidecar
from pdcluster_worker.wire import codec
from tests.unit.rendezvous.test_view import STATUS


class FakeScheduler:
    """Answers on the status socket; ``mute`` makes it hang, `close` makes it gone."""

    def __init__(self, address: str) -> None:
        self.status = STATUS
        self.asked = 0
        self.mute = False
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(address)
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            *envelope, question = await self._socket.recv_multipart()
            assert codec.ask.read(question).what == "status"
            self.asked += 1
            if not self.mute:
                await self._socket.send_multipart([*envelope, codec.write(self.status)])

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._socket.close()
        self._context.term()


def settings(folder: Path, *, token: str = "") -> Settings:
    launch = {"role": "prefill", "ports": {"sidecar": 0, "health": 0}, "limits": {"loopHangS": 0.5}}
    environment = {
        ENV_LAUNCH: json.dumps(launch),
        ENV_RUN_DIR: str(folder),
        ENV_POD_NAME: "p-0",
        ENV_POD_UID: "uid-1",
    }
    if token:
        (folder / "token").write_text(token)
        environment[ENV_TOKEN_FILE] = str(folder / "token")
    return load(environment)


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[FakeScheduler]:
    fake = FakeScheduler(settings(tmp_path).status_address)
    yield fake
    await fake.close()


@pytest.fixture
async def ports(tmp_path: Path) -> AsyncIterator[Ports]:
    async with sidecar(settings(tmp_path), SystemClock()) as ports:
        yield ports


def stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.StatusStub(channel)  # type: ignore[no-untyped-call]


async def check(port: int, service: str) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=5
        )
        name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return name


async def get(port: int, **call: Any) -> pb.WorkerStatus:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        status: pb.WorkerStatus = await stub(channel).Get(pb.GetStatusRequest(), timeout=5, **call)
        return status


async def eventually(question: Callable[[], Awaitable[object]], wanted: object) -> None:
    async with asyncio.timeout(10):
        while await question() != wanted:
            await asyncio.sleep(0.05)


async def test_status(scheduler: FakeScheduler, ports: Ports) -> None:
    status = await get(ports.control)
    assert status.state == pb.WORKER_STATE_SERVING
    assert status.identity.pod_name == "p-0"
    assert status.identity.instance == "i-1"
    assert status.pages.free == 4
    assert 0 <= status.age_s < 1


async def test_many_callers_share_one_question(scheduler: FakeScheduler, ports: Ports) -> None:
    before = scheduler.asked
    await asyncio.gather(*(get(ports.control) for _ in range(20)))
    assert scheduler.asked - before < 20


async def test_health(scheduler: FakeScheduler, ports: Ports) -> None:
    await eventually(lambda: check(ports.health, "readiness"), "SERVING")
    assert await check(ports.health, "liveness") == "SERVING"
    assert await check(ports.health, "") == "SERVING"
    scheduler.status = msgspec.structs.replace(STATUS, draining=True)
    await eventually(lambda: check(ports.health, "readiness"), "NOT_SERVING")
    assert await check(ports.health, "liveness") == "SERVING"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(ports.health, "nonsense")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_hung_gone_and_back(tmp_path: Path, scheduler: FakeScheduler, ports: Ports) -> None:
    await eventually(lambda: check(ports.health, "readiness"), "SERVING")
    scheduler.mute = True
    await eventually(lambda: check(ports.health, "liveness"), "NOT_SERVING")
    status = await get(ports.control)
    assert status.state == pb.WORKER_STATE_HUNG
    assert status.identity.instance == "i-1"
    assert status.age_s > 0.5
    await scheduler.close()

    async def state() -> object:
        return (await get(ports.control)).state

    await eventually(state, pb.WORKER_STATE_GONE)
    successor = FakeScheduler(settings(tmp_path).status_address)
    successor.status = msgspec.structs.replace(STATUS, instance="i-2")
    await eventually(state, pb.WORKER_STATE_SERVING)
    assert (await get(ports.control)).identity.instance == "i-2"
    await successor.close()


async def test_without_a_worker(ports: Ports) -> None:
    status = await get(ports.control)
    assert (status.state, status.age_s) == (pb.WORKER_STATE_STARTING, -1.0)
    assert await check(ports.health, "liveness") == "SERVING"
    assert await check(ports.health, "readiness") == "NOT_SERVING"


@pytest.mark.parametrize("interval_s", [0.0, -1.0, float("nan")])
async def test_watch_has_a_least_interval(
    scheduler: FakeScheduler, ports: Ports, interval_s: float
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.control}") as channel:
        loop = asyncio.get_running_loop()
        started = loop.time()
        call = stub(channel).Watch(pb.WatchStatusRequest(interval_s=interval_s))
        for _ in range(3):
            assert (await call.read()).state == pb.WORKER_STATE_SERVING
        assert loop.time() - started > 0.15
        call.cancel()


async def test_control_needs_the_token_and_health_does_not(tmp_path: Path) -> None:
    async with sidecar(settings(tmp_path, token="s3cret"), SystemClock()) as ports:
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await get(ports.control, metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await get(ports.control, metadata=(("authorization", "Bearer s3cret"),))
        assert await check(ports.health, "") == "SERVING"


async def test_reflection(ports: Ports) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.control}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([request]))
        answer = await call.read()
        call.cancel()
    names = {service.name for service in answer.list_services_response.service}
    assert "pdcluster.control.v1.Status" in names


async def test_a_taken_port_is_an_error(tmp_path: Path, ports: Ports) -> None:
    launch = {"role": "prefill", "ports": {"sidecar": ports.control, "health": 0}}
    second = load({ENV_LAUNCH: json.dumps(launch), ENV_RUN_DIR: str(tmp_path)})
    with pytest.raises(OSError, match="cannot listen"):
        async with sidecar(second, SystemClock()):
            pass


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys, pdcluster_worker.sidecar.__main__; "
        "print(*{'torch', 'numpy', 'transformers', 'starlette', 'httpx'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.stdout.strip() == ""
