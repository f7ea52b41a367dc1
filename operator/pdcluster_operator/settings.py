"""Environment variables that people may set; nothing else on this side reads the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from pdcluster_api.names import ENV_CACHE_DIR
from pdcluster_operator.errors import SettingError

ENV_STATE_DIR: Final = "PDCLUSTER_STATE_DIR"
ENV_LOCAL_RANGE: Final = "PDCLUSTER_LOCAL_RANGE"
_OURS: Final = "PDCLUSTER_"
_LOOPBACK: Final = IPv4Network("127.0.0.0/8")
_PREFIX_BITS_MAX: Final = 29  # six addresses: a pair, its router, and room for a replacement


@dataclass(frozen=True, slots=True)
class Settings:
    """What a local run takes from its surroundings."""

    state_dir: Path
    """Run state and logs, one folder per cluster. Default `$XDG_STATE_HOME/pdcluster`, else
    `~/.local/state/pdcluster`."""

    cache_dir: Path
    """Converted models, kept between runs. Default `$XDG_CACHE_HOME/pdcluster`, else
    `~/.cache/pdcluster`."""

    local_range: str
    """Loopback network that local pods get their addresses from. Default 127.77.0.0/16."""

    inherited: Mapping[str, str]
    """Environment that local containers inherit: all but our own variables, so that a pod sees
    only what its manifest says about pdcluster."""


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment (or the given stand-in)."""
    env = dict(os.environ) if environ is None else dict(environ)
    home = Path(env.get("HOME", "~")).expanduser()
    state = env.get(ENV_STATE_DIR) or _under(env, "XDG_STATE_HOME", home / ".local/state")
    cache = env.get(ENV_CACHE_DIR) or _under(env, "XDG_CACHE_HOME", home / ".cache")
    return Settings(
        state_dir=Path(state),
        cache_dir=Path(cache),
        local_range=_loopback(env.get(ENV_LOCAL_RANGE) or "127.77.0.0/16"),
        inherited={key: value for key, value in env.items() if not key.startswith(_OURS)},
    )


def _loopback(text: str) -> str:
    """Return a range that this machine answers on without set-up and that holds some pods."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise SettingError(f"{ENV_LOCAL_RANGE}: {error}") from error
    if not network.subnet_of(_LOOPBACK) or network.prefixlen > _PREFIX_BITS_MAX:
        allowed = f"must lie within {_LOOPBACK} and be no smaller than /{_PREFIX_BITS_MAX}"
        raise SettingError(f"{ENV_LOCAL_RANGE}: {text} is not allowed: {allowed}")
    return text


def keep_grpc_out_of_forks() -> None:
    """Turn off gRPC's fork handlers, before its first use. A local run forks only to start another
    program; the handlers have nothing to do there and say so on the terminal."""
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def _under(env: Mapping[str, str], variable: str, default: Path) -> str:
    return str(Path(env.get(variable) or default) / "pdcluster")
