"""The local kubelet with real, small processes."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from pdcluster_operator.local.kubelet import reaper
from tests.wiring.kubelet_rig import (
    PYTHON,
    REPOSITORY,
    container,
    local_kubelet,
    log_text,
    pod,
    python,
    until,
)

pytestmark = pytest.mark.real

SLEEP = "import signal; signal.pause()"


async def test_a_pod_gets_address_environment_and_volumes(tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps(dict(os.environ)));" + SLEEP
    manifest = pod(
        "one",
        python(
            "main",
            code,
            env=[
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "URL", "value": "http://$(IP):80/$$(IP)"},
                {"name": "RUN", "value": "/run/pdcluster/a.sock:/run/pdclusters"},
                {"name": "TOKEN", "value": "/etc/token/key"},
            ],
            volumeMounts=[
                {"name": "run", "mountPath": "/run/pdcluster"},
                {"name": "token", "mountPath": "/etc/token"},
            ],
        ),
        volumes=[
            {"name": "run", "emptyDir": {}},
            {"name": "token", "secret": {"secretName": "s"}},
        ],
    )
    async with local_kubelet(tmp_path) as (source, kubelet):
        source.put_secret(namespace="default", name="s", data={"key": b"value"})
        record = source.create(manifest)
        await until(lambda: "\n" in log_text(tmp_path, "one", "main"))
        env = json.loads(log_text(tmp_path, "one", "main").splitlines()[0])
        assert env["IP"] == record.status["podIP"]
        assert env["URL"] == f"http://{env['IP']}:80/$(IP)"
        folder, other = env["RUN"].split(":")
        assert folder.startswith(str(kubelet.scratch))
        assert other == "/run/pdclusters"
        assert Path(env["TOKEN"]).read_bytes() == b"value"
        assert record.ready
        scratch = kubelet.scratch
    assert not scratch.exists()


async def test_a_failing_container_restarts_with_growing_pauses(tmp_path: Path) -> None:
    code = "import time; print(time.monotonic()); raise SystemExit(3)"
    async with local_kubelet(tmp_path) as (source, _):
        record = source.create(pod("crash", python("main", code)))
        await until(lambda: container(record, "main").get("restartCount", 0) >= 4)
        status = container(record, "main")
        ended = status.get("lastState", status["state"])["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    starts = [float(line) for line in log_text(tmp_path, "crash", "main").split()]
    pauses = [b - a for a, b in pairwise(starts)]
    assert pauses[2] > pauses[0]
    assert pauses[2] >= 0.2


async def test_a_container_that_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if not child: os.setsid()\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()"
    )
    async with local_kubelet(tmp_path) as (source, _):
        record = source.create(pod("deaf", python("main", code), terminationGracePeriodSeconds=1))
        await until(lambda: log_text(tmp_path, "deaf", "main").count("\n") == 2)
        pids = list(map(int, log_text(tmp_path, "deaf", "main").split()))
        source.delete(record.uid)
        begun = asyncio.get_running_loop().time()
        await until(lambda: not source.pods())
        assert 0.9 < asyncio.get_running_loop().time() - begun < 3
    assert not any(alive(pid) for pid in pids)


async def test_sidecars_start_first_and_end_last(tmp_path: Path) -> None:
    def noting(name: str) -> str:
        return (
            "import signal, sys\n"
            f"def note(what): print('{name}', what, file=open(r'/shared/log', 'a'))\n"
            "def end(*_): note('ends'); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end); note('starts')\n"
            "while True: signal.pause()"
        )

    shared = tmp_path / "shared"
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    ready = {"exec": {"command": ["python", "-S", "-c", "pass"]}, "periodSeconds": 1}
    manifest = pod(
        "order",
        python("main", noting("main"), volumeMounts=mounts),
        initContainers=[
            python(
                "side",
                noting("side"),
                restartPolicy="Always",
                volumeMounts=mounts,
                startupProbe=ready,
            ),
            python(
                "init",
                "import time; print('init', 'runs', file=open(r'/shared/log', 'a'))",
                volumeMounts=mounts,
            ),
        ],
        volumes=[
            {"name": "shared", "hostPath": {"path": str(shared), "type": "DirectoryOrCreate"}}
        ],
    )
    async with local_kubelet(tmp_path) as (source, _):
        record = source.create(manifest)
        await until(lambda: record.ready and "main starts" in (shared / "log").read_text())
        source.delete(record.uid)
        await until(lambda: not source.pods())
    assert (shared / "log").read_text().split("\n")[:5] == [
        "side starts",
        "init runs",
        "main starts",
        "main ends",
        "side ends",
    ]


async def test_a_failed_liveness_probe_restarts_and_readiness_does_not(tmp_path: Path) -> None:
    fails = {
        "exec": {"command": ["python", "-S", "-c", "raise SystemExit(1)"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "timeoutSeconds": 5,
    }
    async with local_kubelet(tmp_path) as (source, _):
        live = source.create(
            pod("live", python("main", SLEEP, livenessProbe=fails), terminationGracePeriodSeconds=1)
        )
        unready = source.create(pod("unready", python("main", SLEEP, readinessProbe=fails)))
        await until(lambda: container(live, "main").get("restartCount", 0) >= 1)
        assert container(live, "main")["lastState"]["terminated"]["reason"].startswith("liveness")
        assert container(unready, "main")["restartCount"] == 0
        assert not unready.ready


async def test_what_a_local_run_cannot_do_is_said(tmp_path: Path) -> None:
    async with local_kubelet(tmp_path) as (source, _):
        bad = source.create(pod("bad", python("main", SLEEP), volumes=[{"name": "x", "nfs": {}}]))
        missing = source.create(pod("missing", {"name": "main", "command": ["no-such-program"]}))
        await until(lambda: bad.status.get("phase") == "Failed")
        await until(lambda: container(missing, "main").get("restartCount", 0) >= 1)
        assert "emptyDir, secret, hostPath" in bad.status["message"]
        (tmp_path / "file").touch()
        path = {"path": str(tmp_path / "file/below"), "type": "DirectoryOrCreate"}
        volume = {"name": "x", "hostPath": path}
        unmade = source.create(pod("unmade", python("main", SLEEP), volumes=[volume]))
        await until(lambda: unmade.status.get("phase") == "Failed")
        assert "Not a directory" in unmade.status["message"]
        assert "no-such-program" in log_text(tmp_path, "missing", "main")


KUBELET_SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.wiring.kubelet_rig import local_kubelet, pod, python, until, log_text
CODE = (
    "import os, signal\\nif not os.fork(): os.setsid()\\n"
    "os.write(1, b'%d\\\\n' % os.getpid())\\nwhile True: signal.pause()"  # one write, whole
)
async def main():
    logs = Path(sys.argv[1])
    async with local_kubelet(logs) as (source, kubelet):
        source.create(pod("orphan", python("main", CODE)))
        await until(lambda: log_text(logs, "orphan", "main").count("\\n") == 2)
        print(kubelet.scratch, *log_text(logs, "orphan", "main").split(), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_nothing_survives_a_killed_kubelet(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PYTHON, "-c", KUBELET_SCRIPT, str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "api:operator:."},
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            scratch, *pids = process.stdout.readline().decode().split()
        assert len(pids) == 2
        assert all(alive(int(pid)) for pid in pids)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    await until(lambda: not any(alive(int(pid)) for pid in pids), 5.0)
    await until(lambda: not Path(scratch).exists(), 5.0)
    assert reaper.kill_all("nobody/") == 0


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    return False
