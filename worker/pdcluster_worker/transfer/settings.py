"""Our defaults for UCX, the library under NIXL: the one place that states and explains them.

Both peers must run alike: with different transports two workers may not reach each other at all.
So the handshake compares `compatibility` before anything is posted.
"""

from collections.abc import Mapping
from importlib.metadata import version

PREFIX = "UCX_"

UCX_DEFAULTS: Mapping[str, str] = {
    # Lets UCX use shared memory although it cannot tell there that a peer died. Notices then take
    # 3-4 us instead of 13-18 us, and a write completes while its peer computes and does not poll;
    # over the TCP lane it would wait for that peer. Death is still seen by the data path.
    "UCX_MM_ERROR_HANDLING": "y",
}

# Variables that decide which lanes two peers can agree on. Device choices (UCX_NET_DEVICES) may
# differ between hosts and are left out.
_AGREED = (
    "UCX_MM_ERROR_HANDLING",
    "UCX_POSIX_ERROR_HANDLING",
    "UCX_SYSV_ERROR_HANDLING",
    "UCX_PROTO_ENABLE",
    "UCX_TLS",
)


def ucx_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a process that will make an agent; ``overrides`` (its UCX_*) win.

    UCX reads it when the agent is made, not later. Setting it is optional: `backend_params` hands
    the same defaults to the library.
    """
    given = {} if overrides is None else overrides
    return {**UCX_DEFAULTS, **{name: given[name] for name in given if name.startswith(PREFIX)}}


def backend_params(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Parameters of NIXL's UCX backend that carry our defaults, less those overridden."""
    given = {} if overrides is None else overrides
    pairs = [
        f"{name.removeprefix(PREFIX)}={value}"
        for name, value in sorted(UCX_DEFAULTS.items())
        if name not in given
    ]
    return {"engine_config": ",".join(pairs)} if pairs else {}


def compatibility(backend: str, overrides: Mapping[str, str] | None = None) -> str:
    """What two peers must have in common to exchange a byte; compared for equality.

    For NIXL: its version up to the minor one (its metadata has no promise beyond) and the settings
    that choose lanes. Raises PackageNotFoundError if the library is not installed.
    """
    if backend != "nixl":
        return backend
    minor = ".".join(version("nixl_cu12").split(".")[:2])
    effective = ucx_environment(overrides)
    chosen = [f"{name.removeprefix(PREFIX)}={effective.get(name, '')}" for name in _AGREED]
    return ";".join([f"nixl/{minor}", *chosen])
