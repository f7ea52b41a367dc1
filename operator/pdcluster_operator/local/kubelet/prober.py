"""Ask one probe once."""

import asyncio
import contextlib
import json
from typing import Final

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pdcluster_operator.local.kubelet.pod import ProbeSpec
from pdcluster_operator.settings import keep_grpc_out_of_forks

_WORDS_CHARS_MAX: Final = 300  # of an answer


class Prober:
    """HTTP, gRPC and TCP probes; every ask ends within the probe's timeout."""

    def __init__(self) -> None:
        keep_grpc_out_of_forks()
        # Proxy variables are for the outside world, not for a pod next door.
        self._http = httpx.AsyncClient(trust_env=False, headers={"user-agent": "kube-probe/local"})

    async def ask(self, probe: ProbeSpec, address: str) -> tuple[bool, str]:
        """Return whether it succeeded, and why not."""
        if probe.http is not None:
            return await self._ask_http(*probe.http, address, probe.timeout_s)
        if probe.grpc is not None:
            return await self._ask_grpc(*probe.grpc, address, probe.timeout_s)
        if probe.tcp is not None:
            return await self._ask_tcp(probe.tcp, address, probe.timeout_s)
        return False, "a probe needs httpGet, grpc, tcpSocket or exec"

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask_http(
        self, port: int, path: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        url = f"http://{address}:{port}{path}"
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._http.get(url, timeout=timeout_s)
        except TimeoutError:
            return False, f"{path}: no answer within {timeout_s:g} s"
        except httpx.ConnectError:
            return False, f"{path} does not answer yet"
        except httpx.HTTPError as error:
            return False, f"{path}: {error or type(error).__name__}"
        good = 200 <= answer.status_code < 400
        said = _words(answer.text)[:_WORDS_CHARS_MAX]
        return good, "" if good else f"{path} answered {answer.status_code} {said}".strip()

    async def _ask_grpc(
        self, port: int, service: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        async with grpc.aio.insecure_channel(
            f"{address}:{port}", options=[("grpc.enable_http_proxy", 0)]
        ) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            request = health_pb2.HealthCheckRequest(service=service)
            try:
                answer = await check(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return False, f"grpc health: {error.code().name}"
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return status == "SERVING", "" if status == "SERVING" else f"grpc health: {status}"

    async def _ask_tcp(self, port: int, address: str, timeout_s: float) -> tuple[bool, str]:
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            return False, f"port {port}: {error or 'no answer'}"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True, ""


def _words(text: str) -> str:
    """Return the message of an error document, else the text as it is, on one line."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, dict):
        error = content.get("error")
        inner = error if isinstance(error, dict) else content
        text = str(inner.get("message") or error or text)
    return " ".join(text.split())
