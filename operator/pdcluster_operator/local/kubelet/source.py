"""Where the kubelet's pods come from and where their status goes."""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class PodRecord:
    """One pod object: what is wanted of it and what was last reported."""

    manifest: dict[str, Any]
    deleting: bool = False
    grace_s: float | None = None  # None: the pod's own grace period
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.manifest["metadata"].get("labels") or {}

    @property
    def ready(self) -> bool:
        conditions = self.status.get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


class PodSource(Protocol):
    """What the kubelet asks of whoever keeps the pods."""

    def pods(self) -> tuple[PodRecord, ...]:
        """Return every pod of this node, also those being deleted. Does not block."""

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return a Secret's data, or None when there is none yet. Does not block."""

    def report(self, uid: str, status: dict[str, Any]) -> None:
        """Take a pod's new status. Does not block."""

    def gone(self, uid: str) -> None:
        """Take note that nothing of a deleted pod is left. Does not block."""

    async def changed(self) -> None:
        """Return when something may have changed since the last call."""


class MemorySource:
    """Pods in memory: the source of a local run."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRecord] = {}
        self._secrets: dict[tuple[str, str], Mapping[str, bytes]] = {}
        self._changed = asyncio.Event()
        self._reported = asyncio.Event()

    # For the owner.

    def create(self, manifest: Mapping[str, Any]) -> PodRecord:
        """Add a pod; gives it a uid."""
        metadata = {**manifest["metadata"], "uid": str(uuid.uuid4())}
        record = PodRecord({**manifest, "metadata": metadata})
        self._pods[record.uid] = record
        self._changed.set()
        return record

    def delete(self, uid: str, grace_s: float | None = None) -> None:
        """Ask for a pod's end; again with a smaller grace to hurry it."""
        record = self._pods[uid]
        record.deleting, record.grace_s = True, grace_s
        self._changed.set()

    def put_secret(self, *, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
        """Add or replace a Secret."""
        self._secrets[namespace, name] = data
        self._changed.set()

    async def reported(self) -> None:
        """Return when a status or an end was reported since the last call."""
        await self._reported.wait()
        self._reported.clear()

    # For the kubelet.

    def pods(self) -> tuple[PodRecord, ...]:
        return tuple(self._pods.values())

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._secrets.get((namespace, name))

    def report(self, uid: str, status: dict[str, Any]) -> None:
        if uid in self._pods:
            self._pods[uid].status = status
            self._reported.set()

    def gone(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._reported.set()

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()
