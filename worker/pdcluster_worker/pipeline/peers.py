"""Peers: who they are, whether they are warm, whether they live.

The life of a peer, the same on both sides once introductions have crossed:

    (Hello/Welcome) -> WARMING    the transport knows it; each side writes one row to the other
    WARMING -> READY              our warm-up write is done and the peer's notice has come
    WARMING | READY -> LOST       silent for ``heartbeat_timeout_s``
    LOST -> READY                 heard again: stopped or unreachable, not dead. After a broken
                                  connection it stays LOST until a new handshake
    any -> gone                   proven gone (a new instance in the same pod) or said Bye

LOST is not gone: a stopped process may still write. Only "gone" releases what it could touch.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pdcluster_worker.core.errors import PeerIncompatible
from pdcluster_worker.kv.rows import WARM_ROW
from pdcluster_worker.pipeline.effects import Address, Effect, Join, Part, Send, Write
from pdcluster_worker.wire.notice import Notice, NoticeKind
from pdcluster_worker.wire.peer import (
    Alive,
    Body,
    Hello,
    Introduction,
    Rejoin,
    RoomKey,
    Unwelcome,
    Welcome,
)

EARLY_MAX = 64  # warm-up notices remembered from peers whose introduction is still on its way


class PeerState(StrEnum):
    """Of a peer that is not gone."""

    WARMING = "warming"
    READY = "ready"
    LOST = "lost"


class Change(StrEnum):
    """What the pipeline must know of a peer."""

    READY = "ready"
    LOST = "lost"
    GONE = "gone"


@dataclass(slots=True, kw_only=True)
class Peer:
    """One incarnation of one worker."""

    instance: str
    intro: Introduction
    heard: float
    state: PeerState = PeerState.WARMING
    joined: bool = True  # the transport knows it
    wrote: bool = False  # our warm-up write is done
    seen: bool = False  # its warm-up notice has come
    draining: bool = False
    warming_since: float = 0.0

    @property
    def whole(self) -> bool:
        """Pages can cross. What was written before the transport let it go proves nothing."""
        return self.joined and self.wrote and self.seen

    @property
    def endpoint(self) -> Address:
        """Of its control socket."""
        return (self.intro.host, self.intro.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """In seconds; see `pdcluster_api.launch.LimitSpec`."""

    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    transfer_timeout_s: float
    forget_s: float  # a lost peer that nothing refers to


class PeerTable:
    """All peers of one worker. Effects go to ``emit``; changes wait in `take_changes`."""

    def __init__(
        self,
        *,
        instance: str,
        intro: Introduction,
        limits: PeerLimits,
        emit: Callable[[Effect], None],
    ) -> None:
        self._instance = instance
        self.intro = intro
        self._limits = limits
        self._emit = emit
        self._peers: dict[str, Peer] = {}
        self._changes: list[tuple[Change, str]] = []
        self._early: deque[str] = deque(maxlen=EARLY_MAX)
        self._beat_at = 0.0
        self._ticked = 0.0

    def take_changes(self) -> list[tuple[Change, str]]:
        """What has changed since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def get(self, instance: str) -> Peer | None:
        """The peer, whatever its state."""
        return self._peers.get(instance)

    def ready(self, instance: str) -> Peer | None:
        """The peer, only when pages may be exchanged with it."""
        peer = self._peers.get(instance)
        return peer if peer is not None and peer.state is PeerState.READY else None

    def states(self) -> dict[str, str]:
        """For status: instance -> state."""
        return {instance: peer.state.value for instance, peer in self._peers.items()}

    def warming(self) -> bool:
        """True while a handshake needs both sides to poll."""
        return any(p.state is PeerState.WARMING for p in self._peers.values())

    # ------------------------------------------------------------------------- handshake
    def check(self, intro: Introduction) -> None:
        """Raise PeerIncompatible, naming both values, unless pages may cross (E8, E9, E41)."""
        for name, ours, theirs in (
            ("KV fingerprint", self.intro.fingerprint, intro.fingerprint),
            ("metadata schema", self.intro.schema, intro.schema),
            ("transport settings", self.intro.transport, intro.transport),
        ):
            if ours != theirs:
                raise PeerIncompatible(f"{name} differs: ours is {ours!r}, the peer's {theirs!r}")

    def met(self, instance: str, message: Hello | Welcome, *, now: float) -> None:
        """An introduction that `check` has passed. Hello is answered with Welcome."""
        intro = message.intro
        self.superseded(intro.pod_uid, instance)
        peer = self._peers.get(instance)
        if peer is None or peer.intro.agent != intro.agent:
            peer = self._peers[instance] = Peer(instance=instance, intro=intro, heard=now)
        peer.heard = now
        peer.joined = True
        peer.seen = peer.seen or instance in self._early
        if isinstance(message, Hello) or peer.state is not PeerState.READY:
            peer.state = PeerState.WARMING
            peer.wrote = False
            peer.warming_since = now
        # A Welcome is answered with a warm-up also where we are ready: the peer may have forgotten
        # us meanwhile, and waits for it.
        self._emit(Join(instance, intro, isinstance(message, Hello)))
        if isinstance(message, Hello):
            self._emit(Send(peer.endpoint, instance, Welcome(intro=self.intro)))
        row = np.array([WARM_ROW], np.int32)
        self._emit(
            Write(
                key=0,
                instance=instance,
                region="meta",
                source=row,
                target=row,
                notice=Notice(kind=NoticeKind.WARM, writer=self._instance, reader=instance),
                within_s=self._limits.transfer_timeout_s,
            )
        )

    def warm_written(self, instance: str) -> None:
        """Our warm-up write is done."""
        if peer := self._peers.get(instance):
            peer.wrote = True
            self._promote(peer)

    def warm_seen(self, instance: str) -> None:
        """The peer's warm-up notice has come."""
        if peer := self._peers.get(instance):
            peer.seen = True
            self._promote(peer)
        else:
            self._early.append(instance)  # the write was faster than the Welcome

    def _promote(self, peer: Peer) -> None:
        if peer.whole and peer.state is PeerState.WARMING:
            peer.state = PeerState.READY
            self._changes.append((Change.READY, peer.instance))

    # -------------------------------------------------------------------------- liveness
    def heard(self, instance: str, now: float) -> None:
        """Any valid frame or notice of a peer."""
        peer = self._peers.get(instance)
        if peer is None:
            return
        peer.heard = now
        if peer.state is PeerState.LOST and peer.whole:
            peer.state = PeerState.WARMING
            self._promote(peer)

    def gone(self, instance: str) -> None:
        """The process is proven dead, or has said Bye."""
        peer = self._peers.pop(instance, None)
        if peer is not None:
            self._emit(Part(instance, peer.intro.agent))
            self._changes.append((Change.GONE, instance))

    def superseded(self, pod_uid: str, instance: str) -> None:
        """``instance`` runs in this pod now: one pod runs one scheduler, its former ones are dead.

        An empty pod uid proves nothing.
        """
        for other in list(self._peers.values()):
            if other.intro.pod_uid == pod_uid != "" and other.instance != instance:
                self.gone(other.instance)

    def broken(self, instance: str) -> None:
        """The transport has lost it; only a new handshake makes it ready again."""
        peer = self._peers.get(instance)
        if peer is None:
            return
        if peer.joined:
            self._emit(Part(instance, peer.intro.agent))
        peer.joined = peer.wrote = peer.seen = False
        if peer.state is not PeerState.LOST:
            peer.state = PeerState.LOST
            self._changes.append((Change.LOST, instance))

    def tick(
        self,
        now: float,
        *,
        rooms: Callable[[str], tuple[RoomKey, ...]],
        needed: Callable[[str], bool],
        draining: bool,
    ) -> None:
        """Heartbeats out, silence noticed, unneeded lost peers forgotten."""
        gap = now - self._ticked if self._ticked else 0.0
        self._ticked = now
        limits = self._limits
        if gap > limits.heartbeat_timeout_s / 2:
            for peer in self._peers.values():  # it is we who slept: hear them out first
                peer.heard = max(peer.heard, now - limits.heartbeat_interval_s)
        if now < self._beat_at:
            return
        self._beat_at = now + limits.heartbeat_interval_s
        for peer in list(self._peers.values()):
            silent = now - peer.heard
            if silent > limits.heartbeat_timeout_s and peer.state is not PeerState.LOST:
                peer.state = PeerState.LOST
                self._changes.append((Change.LOST, peer.instance))
            if silent > limits.forget_s and not needed(peer.instance):
                self._forget(peer)
                continue
            self._hurry(peer, now)
            beat = Alive(rooms=rooms(peer.instance), draining=draining)
            self._emit(Send(peer.endpoint, peer.instance, beat))

    def _forget(self, peer: Peer) -> None:
        """No longer a peer of ours, and it may be alive: one that was stopped wakes up and takes us
        for ready. Told that we are not, its requests need not fail first, one heartbeat limit long.
        """
        if self.intro.role == "prefill":
            self._emit(Send(peer.endpoint, peer.instance, Rejoin()))
        self.gone(peer.instance)

    def _hurry(self, peer: Peer, now: float) -> None:
        """Ask for a new handshake where one is overdue or the connection broke: nobody else does.

        A decode greets again by itself, as soon as it wants pages.
        """
        patience_s = self._limits.heartbeat_timeout_s
        if peer.whole or self.intro.role != "prefill" or now - peer.heard > patience_s:
            return
        if now - peer.warming_since > patience_s:
            peer.warming_since = now
            self._emit(Send(peer.endpoint, peer.instance, Rejoin()))

    def say(self, instance: str, body: Body) -> bool:
        """Send a frame to a known peer; False when it is not known."""
        peer = self._peers.get(instance)
        if peer is None:
            return False
        self._emit(Send(peer.endpoint, instance, body))
        return True

    def unwelcome(self, instance: str, intro: Introduction, *, error: PeerIncompatible) -> None:
        """Refuse a worker that is no peer."""
        refusal = Unwelcome(kind=error.kind, message=str(error))
        self._emit(Send((intro.host, intro.port), instance, refusal))

    def rejoin(self, instance: str) -> None:
        """Ask a peer for a new handshake, unless one is under way."""
        peer = self._peers.get(instance)
        if peer is not None and peer.state is PeerState.LOST:
            self._emit(Send(peer.endpoint, instance, Rejoin()))

    def everybody(self, body: Body) -> None:
        """Send a frame to all peers."""
        for peer in self._peers.values():
            self._emit(Send(peer.endpoint, peer.instance, body))
