"""The serving benchmark runs through with real processes; what it measures then means nothing."""

import asyncio
import json
import sys
from pathlib import Path

import pytest


@pytest.mark.real
async def test_the_quick_serving_benchmark_writes_its_tables(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "bench.serving", "--quick", "--out", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, output.decode(errors="replace")[-3000:]
    report = json.loads((tmp_path / "serving.json").read_text())
    assert {"single", "several", "long"} == set(report["workloads"])
    assert [row["chunk_tokens"] for row in report["tuning"]] == [128]
    [goals] = report["goals"]
    assert goals["gap_ratio"] > 0
    text = (tmp_path / "serving.md").read_text()
    for words in ("added to TTFT", "| prefill | forward |", "| decode | transfer |"):
        assert words in text
