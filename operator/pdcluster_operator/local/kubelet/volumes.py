"""Volumes as folders, and container paths translated to them.

A local container has no file system of its own. Each volume is a folder; wherever a container's
environment or command line mentions a mount path (`/run/pdcluster/x`), the folder is written
instead. So a program finds its files as long as it is *told* their place, which is how the
manifests here do it.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pdcluster_operator.errors import UnsupportedPod
from pdcluster_operator.local.kubelet.pod import ContainerSpec, PodSpec

SecretReader = Callable[[str, str], Mapping[str, bytes] | None]


class PodVolumes:
    """The folders of one pod. `root` is short: Unix sockets below it have 107 bytes of path."""

    def __init__(self, spec: PodSpec, root: Path, secrets: SecretReader) -> None:
        self._root = root
        self._folders = {
            name: self._make(spec.namespace, name, volume, secrets)
            for name, volume in spec.volumes.items()
        }

    def translator(self, container: ContainerSpec) -> Callable[[str], str]:
        """Return the function that translates paths in a container's texts."""
        places: dict[str, str] = {}
        for mount, volume, sub_path in container.mounts:
            if volume not in self._folders:
                raise UnsupportedPod(f"container {container.name}: no volume {volume}")
            place = self._folders[volume] / sub_path
            place.mkdir(parents=True, exist_ok=True)
            places[mount.rstrip("/")] = str(place)
        if not places:
            return lambda text: text
        longest_first = sorted(places, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest_first))
        # A whole path: not the tail of a longer one, not the head of a longer name.
        pattern = re.compile(rf"(?<![\w./-])({paths})(?![\w.-])")
        return lambda text: pattern.sub(lambda found: places[found[1]], text)

    def remove(self) -> None:
        """Remove what was made; the node's own folders stay."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _make(
        self, namespace: str, name: str, volume: Mapping[str, Any], secrets: SecretReader
    ) -> Path:
        if "hostPath" in volume:
            folder = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                folder.mkdir(parents=True, exist_ok=True)
            return folder
        folder = self._root / name
        folder.mkdir(parents=True, mode=0o700)
        if "secret" in volume:
            secret = str(volume["secret"]["secretName"])
            data = secrets(namespace, secret)
            if data is None:
                raise UnsupportedPod(f"volume {name}: there is no secret {namespace}/{secret}")
            for key, content in data.items():
                file = folder / key
                file.touch(mode=0o600)
                file.write_bytes(content)
        return folder
