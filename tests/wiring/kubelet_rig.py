"""A local kubelet for tests, with small pods."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pdcluster_operator.clock import SystemClock
from pdcluster_operator.local.kubelet import (
    Kubelet,
    KubeletOptions,
    MemorySource,
    Places,
    PodRecord,
)
from pdcluster_operator.settings import load_settings

NETWORK = "127.78.0.0/16"
QUICK = KubeletOptions(backoff_base_s=0.05, backoff_max_s=0.4, eager_period_s=0.05)


@asynccontextmanager
async def local_kubelet(
    logs: Path, options: KubeletOptions = QUICK
) -> AsyncIterator[tuple[MemorySource, Kubelet]]:
    source = MemorySource()
    places = Places(logs=logs, network=NETWORK, inherited=load_settings().inherited)
    async with Kubelet(source, places, SystemClock(), options) as kubelet:
        yield source, kubelet


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": list(containers), **spec},
    }


def python(name: str, code: str, **rest: Any) -> dict[str, Any]:
    return {"name": name, "command": ["python", "-S", "-u", "-c", code], **rest}


async def until(check: Callable[[], object], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not check():
            await asyncio.sleep(0.02)


def container(record: PodRecord, name: str) -> dict[str, Any]:
    both = (
        *record.status.get("initContainerStatuses", ()),
        *record.status.get("containerStatuses", ()),
    )
    return next((item for item in both if item["name"] == name), {})


def log_text(logs: Path, pod_name: str, name: str) -> str:
    path = logs / pod_name / f"{name}.log"
    return path.read_text() if path.exists() else ""


REPOSITORY = Path(__file__).parents[2]
PYTHON = sys.executable
