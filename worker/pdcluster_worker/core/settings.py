"""The one place of the worker that reads environment variables.

`load` turns them into a frozen `Settings`, or raises one `SettingsError` that lists everything that
is wrong: the variable, its value and what is allowed. Child processes get the same settings through
`Settings.environment`.
"""

import ipaddress
import json
import os
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import (
    ENV_CACHE_DIR,
    ENV_LAUNCH,
    ENV_LOG_LEVEL,
    ENV_POD_IP,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_RUN_DIR,
    ENV_TOKEN_FILE,
    SOCKET_OUTPUTS,
    SOCKET_REQUESTS,
    SOCKET_STATUS,
)
from pdcluster_api.schema import Problem, SchemaError, decode, encode

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
TOKEN_BYTES_MAX: Final = 4096
# A unix socket path holds 107 bytes on Linux; longer ones fail at bind with a puzzling message.
RUN_DIR_BYTES_MAX: Final = 107 - max(map(len, (SOCKET_REQUESTS, SOCKET_OUTPUTS, SOCKET_STATUS))) - 1
_UCX: Final = "UCX_"  # the transfer library's own variables; the user's choice overrides ours


class SettingsError(ValueError):
    """The environment is wrong; ``problems`` has every reason."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a worker's processes are told from outside."""

    launch: LaunchSpec
    pod_name: str  # default: the host's name
    # A new instance of the same pod proves that its predecessor is dead, so two live workers must
    # never share it. Default: made up, unique.
    pod_uid: str
    pod_ip: str  # every port listens here; default 127.0.0.1
    token: str = field(repr=False)  # shared secret of the cluster; "" when no token file is set
    token_file: Path | None
    run_dir: Path  # ipc sockets; default: a private folder that depends on the user and the pod IP
    run_dir_given: bool = field(compare=False)  # false: the default, which must be this user's
    cache_dir: Path  # converted models
    log_level: str  # one of LOG_LEVELS
    ucx: Mapping[str, str]  # the UCX_* variables, which override our defaults for UCX

    @property
    def requests_address(self) -> str:
        """Bound by the scheduler (PULL)."""
        return f"ipc://{self.run_dir / SOCKET_REQUESTS}"

    @property
    def outputs_address(self) -> str:
        """Bound by the frontend (PULL)."""
        return f"ipc://{self.run_dir / SOCKET_OUTPUTS}"

    @property
    def status_address(self) -> str:
        """Bound by the scheduler (ROUTER)."""
        return f"ipc://{self.run_dir / SOCKET_STATUS}"

    @property
    def served_name(self) -> str:
        """Name of the model for clients."""
        model = self.launch.model
        tail = model.source.partition("://")[2] or model.source
        return model.served_name or tail.partition("?")[0].rstrip("/").rpartition("/")[2]

    def prepare(self) -> None:
        """Make the run and cache folders. SettingsError when the default run folder is not ours."""
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        if not self.run_dir_given and self.run_dir.stat().st_uid != os.getuid():
            found = f"{self.run_dir} belongs to another user"
            raise SettingsError((Problem(ENV_RUN_DIR, found, "must be a folder of your own"),))

    def environment(self) -> dict[str, str]:
        """Variables from which a child process loads equal settings."""
        token = {} if self.token_file is None else {ENV_TOKEN_FILE: str(self.token_file)}
        return {
            ENV_LAUNCH: json.dumps(encode(self.launch)),
            ENV_POD_NAME: self.pod_name,
            ENV_POD_UID: self.pod_uid,
            ENV_POD_IP: self.pod_ip,
            ENV_RUN_DIR: str(self.run_dir),
            ENV_CACHE_DIR: str(self.cache_dir),
            ENV_LOG_LEVEL: self.log_level,
            **token,
            **self.ucx,
        }

    def child_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """All variables for a child process: ours, the inherited ones, and ``extra``."""
        return {**os.environ, **self.environment(), **extra}


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the process's environment, or ``environ`` in tests. Raises SettingsError."""
    reader = _Reader(os.environ if environ is None else environ)
    launch = reader.launch()
    pod_ip = reader.address()
    token = reader.token()
    log_level = reader.log_level()
    run_dir = reader.run_dir(pod_ip)
    if launch is None or reader.problems:
        raise SettingsError(tuple(reader.problems))
    return Settings(
        launch=launch,
        pod_name=reader.text(ENV_POD_NAME) or os.uname().nodename,
        pod_uid=reader.text(ENV_POD_UID) or f"local-{uuid.uuid4()}",
        pod_ip=pod_ip,
        token=token,
        token_file=Path(reader.text(ENV_TOKEN_FILE)) if token else None,
        run_dir=run_dir,
        run_dir_given=bool(reader.text(ENV_RUN_DIR)),
        cache_dir=reader.cache_dir(),
        log_level=log_level,
        ucx=reader.ucx(),
    )


def default_cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Where converted models stay: as the environment says, else in the user's cache."""
    given = os.environ if environ is None else environ
    if chosen := given.get(ENV_CACHE_DIR):
        return Path(chosen)
    base = given.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pdcluster"


class _Reader:
    """Reads variables and collects problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[Problem] = []

    def _refuse(self, key: str, value: str, allowed: str) -> None:
        self.problems.append(Problem(key, f"{value!r} is not allowed", f"must be {allowed}"))

    def text(self, key: str) -> str:
        return self._environ.get(key, "")

    def launch(self) -> LaunchSpec | None:
        """JSON in the variable itself, or in the file that it names; None after a problem."""
        text = self.text(ENV_LAUNCH).strip()
        if not text:
            allowed = "must be the launch specification as JSON, or the name of a file with it"
            self.problems.append(Problem(ENV_LAUNCH, "missing", allowed))
            return None
        try:
            return decode(
                LaunchSpec, json.loads(text if text[0] == "{" else Path(text).read_text())
            )
        except OSError as error:
            self._refuse(
                ENV_LAUNCH, text, f"JSON or the name of a readable file ({error.strerror})"
            )
        except SchemaError as error:
            self.problems += [
                Problem(f"{ENV_LAUNCH}.{p.path}", p.found, p.allowed) for p in error.problems
            ]
        except ValueError as error:  # JSON or UTF-8
            self._refuse(ENV_LAUNCH, text[:60], f"valid JSON ({error})")
        return None

    def address(self) -> str:
        value = self.text(ENV_POD_IP) or "127.0.0.1"
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            self._refuse(ENV_POD_IP, value, "an IPv4 or IPv6 address")
            return "127.0.0.1"

    def run_dir(self, pod_ip: str) -> Path:
        default = Path(tempfile.gettempdir()) / f"pdcluster-{os.getuid()}-{pod_ip}"
        path = Path(self.text(ENV_RUN_DIR) or default)
        if len(os.fsencode(path)) > RUN_DIR_BYTES_MAX:
            allowed = f"at most {RUN_DIR_BYTES_MAX} bytes long (unix sockets)"
            self._refuse(ENV_RUN_DIR, str(path), allowed)
        return path

    def token(self) -> str:
        """Content of the token file. The value itself never appears in a message."""
        name = self.text(ENV_TOKEN_FILE)
        if not name:
            return ""
        try:
            with Path(name).open("rb") as file:
                value = file.read(TOKEN_BYTES_MAX + 1).strip()
        except OSError as error:
            self._refuse(ENV_TOKEN_FILE, name, f"a readable file ({error.strerror})")
            return ""
        if not value or len(value) > TOKEN_BYTES_MAX or not value.isascii() or b"\n" in value:
            allowed = f"a file with one line of 1 to {TOKEN_BYTES_MAX} ASCII characters"
            self._refuse(ENV_TOKEN_FILE, name, allowed)
            return ""
        return value.decode("ascii")

    def cache_dir(self) -> Path:
        return default_cache_dir(self._environ)

    def log_level(self) -> str:
        value = self.text(ENV_LOG_LEVEL).lower() or "info"
        if value not in LOG_LEVELS:
            self._refuse(ENV_LOG_LEVEL, value, f"one of {', '.join(LOG_LEVELS)}")
        return value

    def ucx(self) -> Mapping[str, str]:
        return MappingProxyType({k: v for k, v in self._environ.items() if k.startswith(_UCX)})
