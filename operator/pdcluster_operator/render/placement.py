"""What differs between a cluster and this machine, as data for the renderer."""

from dataclasses import dataclass
from typing import Final

RUN_DIR: Final = "/run/pdcluster"
TOKEN_DIR: Final = "/etc/pdcluster/token"  # noqa: S105 - a folder
CACHE_DIR: Final = "/var/cache/pdcluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where pods run."""

    cache_host_path: str = ""
    """Folder of the node that keeps converted models between pods; empty: an emptyDir."""

    log_level: str = "info"
    """PDCLUSTER_LOG_LEVEL of every container of ours."""
