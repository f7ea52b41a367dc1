"""aiperf in an environment of its own, one profile run, and what the worker counted meanwhile.

Its dependencies include an older pyzmq than ours, so it cannot share our environment.
"""

import asyncio
import json
import os
import shutil
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdcluster_operator.settings import load_settings

VERSION = "aiperf==0.13.0"
RUN_S = 300.0
REPORT = "profile_export_aiperf.json"


async def installed() -> Path:
    """The command, installed once into the cache. Skips where no registry can be reached."""
    folder = load_settings().cache_dir / "tests" / VERSION.replace("==", "-")
    command, done = folder / "bin" / "aiperf", folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left
        await asyncio.to_thread(venv.create, folder, with_pip=True)
        install = ("-m", "pip", "install", "-q", VERSION)
        process = await asyncio.create_subprocess_exec(str(folder / "bin" / "python"), *install)
        if await process.wait():
            pytest.skip(f"{VERSION} cannot be installed here")
        done.touch()
    return command


async def profile(url: str, *, tokenizer: Path, folder: Path, more: Mapping[str, str]) -> Any:
    """Run `aiperf profile` on streamed chats one at a time; its summary. Needs no network."""
    options = {
        "url": url,
        "model": "m",
        "endpoint-type": "chat",
        "tokenizer": str(tokenizer),
        "concurrency": "1",
        "random-seed": "7",
        "output-artifact-dir": str(folder),
        "ui": "none",
        "export-level": "summary",
        **more,
    }
    flags = ("--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics")
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    # Its offline mode knows no folders, only a hub's cache; a folder is read without asking a hub.
    own = {"HF_HOME": str(folder / "hub"), "NO_PROXY": "*", "no_proxy": "*"}
    env = {**os.environ, **own}
    log = folder / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            str(await installed()), "profile", *words, *flags,
            stdout=out, stderr=out, env=env, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        async with asyncio.timeout(RUN_S):
            status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert status == 0, log.read_text(errors="replace")[-3000:]
    return json.loads((folder / REPORT).read_text())


async def counted(worker: str) -> dict[str, float]:
    """Every sample of a worker's /metrics, by name with its labels' values."""
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{worker}/metrics")).text
    return {
        ":".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
