"""NIXL behind the transfer contract; the only file of the product that imports it.

The life of a write, moved by `poll` and, once it failed or was given up, by `settled`:

    1 posted     one part is with the library; on one host its bytes are copied inside the post
    2 between    that part is done and others are left: the next poll posts the next one
    3 done       all parts are done; the last one carried the notice to the peer
    4 failed     the library or the deadline said so; no further part is posted, but the part in
                 flight may still read our memory until `settled`
    5 released   handles went back; released before it settled, it is kept as a leftover and asked
                 at every tick until the library lets go

There is no progress thread: a spinning one costs a core per agent. Every call here progresses all
traffic of the agent, and `notices` is what an idle loop calls.
"""

import logging
import uuid
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from nixl_cu12 import _bindings, nixl_agent, nixl_agent_config

from pdcluster_worker.core.errors import (
    TransferError,
    TransferInvalid,
    TransferPeerLost,
    TransferTimeout,
)
from pdcluster_worker.core.ports import PageIds, Region, TransferPeer, WriteState, WriteStats
from pdcluster_worker.transfer.base import (
    Failure,
    KnownPeer,
    TransportSetup,
    already_known,
    by_name,
    check_write,
    descriptor_row,
    shared_regions,
)
from pdcluster_worker.transfer.settings import backend_params

Handle = Any  # the library's opaque objects; it has no types
UCX = "UCX"
OURSELVES = "NIXL_INIT_AGENT"  # the library's word for the writer's own side

# Sent to a new peer and swallowed by its `notices`: connections are made while both sides poll, so
# that a later write does not wait for a peer that computes.
HELLO = b"\0pdcluster hello"

ERRORS: dict[type[Exception], type[TransferError]] = {
    _bindings.nixlRemoteDisconnectError: TransferPeerLost,
    _bindings.nixlBackendError: TransferError,
    _bindings.nixlCancelledError: TransferError,
    _bindings.nixlUnknownError: TransferError,
    _bindings.nixlInvalidParamError: TransferInvalid,
    _bindings.nixlMismatchError: TransferInvalid,
    _bindings.nixlNoTelemetryError: TransferInvalid,
    _bindings.nixlNotAllowedError: TransferInvalid,
    _bindings.nixlNotFoundError: TransferInvalid,
    _bindings.nixlNotPostedError: TransferInvalid,
    _bindings.nixlNotSupportedError: TransferInvalid,
    _bindings.nixlRepostActiveError: TransferInvalid,
}
LIBRARY_ERRORS = tuple(ERRORS)

logger = logging.getLogger(__name__)


def failure_of(error: Exception, what: str) -> Failure:
    """The worker's own error for one of the library's, with what we were doing."""
    return Failure(ERRORS[type(error)], f"{what}: {error}")


@dataclass(slots=True)
class _Peer(KnownPeer):
    """With, per region, the library's prepared list of all its items."""

    lists: dict[str, Handle] = field(default_factory=dict)


@dataclass(slots=True)
class _Write:
    """See the module's docstring. Parts before the last one are always done."""

    agent: str
    region: str
    source: PageIds
    target: PageIds
    notice: bytes
    part_items: int
    prepared: Handle  # the first part, until it is posted
    deadline: float = 0.0
    posted_s: float | None = None
    posted_items: int = 0
    parts: list[Handle] = field(default_factory=list)
    seconds: float | None = None  # set when done
    failure: Failure | None = None

    @property
    def done(self) -> bool:
        return self.seconds is not None


class NixlTransport:
    """`core.ports.Transport` over one NIXL agent with the UCX backend."""

    name = "nixl"

    def __init__(self, setup: TransportSetup) -> None:
        self._clock = setup.clock
        self._post_bytes_max = setup.options.post_bytes_max
        self._regions = by_name(setup.regions)
        self._peers: dict[str, _Peer] = {}
        self._writes: dict[int, _Write] = {}
        self._leftovers: dict[int, _Write] = {}
        self._handles = count(1)
        self._agent_name = uuid.uuid4().hex
        logging.getLogger("nixl").setLevel(logging.WARNING)  # it chats on standard output
        config = nixl_agent_config(enable_prog_thread=False, backends=[], capture_telemetry=True)
        self._agent: Handle = nixl_agent(self._agent_name, config)
        try:
            self._agent.create_backend(UCX, backend_params(setup.options.ucx))
            self._registered = [
                self._agent.register_memory(
                    [(r.address, r.item_bytes * r.items, r.device, "")], r.kind
                )
                for r in self._regions.values()
            ]
            self._lists = {name: self._prepare(OURSELVES, r) for name, r in self._regions.items()}
            metadata: bytes = self._agent.get_agent_metadata()
        except LIBRARY_ERRORS as error:
            raise failure_of(error, "register memory").error() from error
        self._told = TransferPeer(
            agent=self._agent_name, metadata=metadata, regions=tuple(self._regions.values())
        )

    def local(self) -> TransferPeer:
        """What to send to peers: a fresh agent name per incarnation, and all regions."""
        return self._told

    def add_peer(self, peer: TransferPeer) -> None:
        """Learn a peer, prepare its lists once and greet it. Our own agent is a valid peer.

        Raises TransferInvalid for metadata that is not the named agent's, for a region outside the
        memory which that agent registered, and for items of another size than ours.
        """
        if self._agent is None:
            raise TransferInvalid("this transport is closed")
        if already_known(self._peers.get(peer.agent), peer):
            return
        entry = _Peer(peer, shared_regions(self._regions, peer))
        try:
            self._load(entry)
        except LIBRARY_ERRORS as error:
            self._unload(entry)
            raise failure_of(error, f"add peer {peer.agent!r}").error() from error
        self._peers[peer.agent] = entry

    def _load(self, entry: _Peer) -> None:
        agent = entry.told.agent
        ourselves = agent == self._agent_name
        if not ourselves:
            found = self._agent.add_remote_agent(entry.told.metadata).decode()
            if found != agent:
                if found not in self._peers:
                    self._agent.remove_remote_agent(found)
                raise TransferInvalid(f"metadata of agent {found!r} came as that of {agent!r}")
        for name, region in entry.regions.items():
            entry.lists[name] = self._prepare(agent, region)
        if not ourselves:
            self._agent.send_notif(agent, HELLO)

    def _prepare(self, agent: str, region: Region) -> Handle:
        return self._agent.prep_xfer_dlist(agent, descriptor_row(region), region.kind, [UCX])

    def remove_peer(self, agent: str) -> None:
        """Forget a peer and disconnect. Raises TransferInvalid while handles to it are held.

        Leftovers to it are cancelled; with the connection gone they cannot go on.
        """
        entry = self._peers.get(agent)
        if entry is None:
            return
        if any(write.agent == agent for write in self._writes.values()):
            raise TransferInvalid(f"peer {agent!r} still has handles; release them first")
        self._unload(entry)
        del self._peers[agent]
        for handle, write in list(self._leftovers.items()):
            if write.agent == agent and self._give_back(write):
                del self._leftovers[handle]

    def _unload(self, entry: _Peer) -> None:
        """Undo `_load`, also a partial one; a peer that is gone already is no error."""
        for write in self._leftovers.values():
            if write.agent == entry.told.agent:
                self._give_back(write)
        try:
            while entry.lists:
                entry.lists.popitem()[1].release()
            if entry.told.agent != self._agent_name:
                self._agent.remove_remote_agent(entry.told.agent)
        except LIBRARY_ERRORS as error:
            logger.debug("forgetting peer %s: %s", entry.told.agent, error)

    def prepare(
        self, *, agent: str, region: str, source: PageIds, target: PageIds, notice: bytes
    ) -> int:
        """Make a write; see the contract. An empty notice is none."""
        peer = self._peers.get(agent)
        if peer is None:
            raise TransferInvalid(f"peer {agent!r} is unknown")
        theirs = peer.region(region)
        ours = self._regions[region]
        check_write(source=source, ours=ours, target=target, theirs=theirs, notice=notice)
        # Only copies of host memory happen inside a post; others may go to the library whole.
        part = source.size
        if ours.kind == "DRAM" and part * ours.item_bytes > self._post_bytes_max:
            part = max(1, self._post_bytes_max // ours.item_bytes)
            source, target = source.copy(), target.copy()  # read again at later polls
        write = _Write(agent, region, source, target, notice, part, None)
        try:
            write.prepared = self._make(peer, write, 0, part)
        except LIBRARY_ERRORS as error:
            raise failure_of(error, f"write to {agent!r}").error() from error
        handle = next(self._handles)
        self._writes[handle] = write
        return handle

    def post(self, handle: int, *, deadline: float) -> None:
        """Start a prepared write. Raises TransferInvalid for a handle that is not prepared.

        What the library says of a post is reported by `poll`, so that there always is a handle to
        ask whether the source memory is quiescent.
        """
        write = self._writes.get(handle)
        if write is None or write.posted_s is not None:
            raise TransferInvalid(f"write handle {handle} is unknown, released or posted")
        write.deadline, write.posted_s = deadline, self._clock.now()
        self._post(self._peers[write.agent], write)

    def _make(self, peer: _Peer, write: _Write, start: int, stop: int) -> Handle:
        """The library's request for some items; the notice goes with the last ones."""
        return self._agent.make_prepped_xfer(
            "WRITE",
            self._lists[write.region],
            write.source[start:stop],
            peer.lists[write.region],
            write.target[start:stop],
            write.notice if stop == write.source.size else b"",
        )

    def _post(self, peer: _Peer, write: _Write) -> None:
        """Hand the next part to the library."""
        start = write.posted_items
        stop = min(start + write.part_items, write.source.size)
        try:
            part = write.prepared or self._make(peer, write, start, stop)
            write.prepared = None
            write.parts.append(part)
            write.posted_items = stop
            self._agent.transfer(part)
        except LIBRARY_ERRORS as error:
            write.failure = failure_of(error, f"write to {write.agent!r}")

    def poll(self, handle: int) -> WriteState:
        """Progress and state; posts at most one part. Raises as the contract says."""
        write = self._writes.get(handle)
        if write is None or write.posted_s is None:
            raise TransferInvalid(f"write handle {handle} is unknown, released or not posted")
        if write.seconds is not None:
            return WriteState.DONE
        if write.failure is None:
            self._advance(write)
        if write.failure is not None:
            raise write.failure.error()
        return WriteState.DONE if write.done else WriteState.PENDING

    def _advance(self, write: _Write) -> None:
        """One step of a write that neither is done nor failed."""
        finished = self._part_done(write)
        late = self._clock.now() > write.deadline
        if finished and write.posted_items < write.source.size and not late:
            self._post(self._peers[write.agent], write)
            finished = write.failure is None and self._part_done(write)
        if write.failure is not None:
            return
        if finished and write.posted_items == write.source.size:
            # Done although late is done: the peer may have the notice already.
            write.seconds = self._clock.now() - (write.posted_s or 0.0)
        elif late:
            write.failure = Failure(
                TransferTimeout,
                f"write to {write.agent!r}: {write.posted_items} of {write.source.size} items "
                f"posted, not done at its deadline",
            )

    def _part_done(self, write: _Write) -> bool:
        """Whether the part last posted is done; what the library says against it is kept."""
        try:
            state = self._agent.check_xfer_state(write.parts[-1])
        except LIBRARY_ERRORS as error:
            write.failure = failure_of(error, f"write to {write.agent!r}")
            return False
        if state == "ERR":
            write.failure = Failure(TransferError, f"write to {write.agent!r}: state ERR")
        return bool(state == "DONE")

    def settled(self, handle: int) -> bool:
        """True once a late write's part in flight ended, or the library took a failed one back."""
        write = self._writes.get(handle) or self._leftovers.get(handle)
        if write is None or write.done or write.posted_s is None:
            return True
        return write.failure is not None and self._quiet(write)

    def _quiet(self, write: _Write) -> bool:
        if not write.parts:
            return self._give_back(write)
        if write.failure is not None and write.failure.kind is TransferTimeout:
            try:
                if self._agent.check_xfer_state(write.parts[-1]) == "PROC":
                    return False
            except LIBRARY_ERRORS as error:
                write.failure = failure_of(error, f"write to {write.agent!r}")
        return self._give_back(write)

    def _give_back(self, write: _Write) -> bool:
        """Return the parts to the library; False if it still holds one."""
        try:
            if write.prepared is not None:
                write.prepared.release()
                write.prepared = None
            while write.parts:
                write.parts[-1].release()
                write.parts.pop()
        except LIBRARY_ERRORS as error:
            logger.warning("write to %s cannot be released yet: %s", write.agent, error)
            return False
        return True

    def stats(self, handle: int) -> WriteStats:
        """Bytes and merged descriptors as the library itself counted them, of a DONE handle."""
        write = self._writes.get(handle)
        if write is None or write.seconds is None:
            raise TransferInvalid(f"write handle {handle} is not done, or released")
        try:
            counted = [self._agent.get_xfer_telemetry(part) for part in write.parts]
        except LIBRARY_ERRORS as error:
            raise failure_of(error, "telemetry").error() from error
        return WriteStats(
            bytes=sum(part.totalBytes for part in counted),
            descriptors=sum(part.descCount for part in counted),
            seconds=write.seconds,
        )

    def release(self, handle: int) -> None:
        """Give the handle back; a write not settled yet becomes a leftover, posted no further."""
        write = self._writes.pop(handle, None)
        if write is None:
            return
        if not write.done and write.failure is None:
            write.failure = Failure(TransferTimeout, "released before it was done")
        settled = self._give_back(write) if write.done else self._quiet(write)
        if not settled:
            self._leftovers[handle] = write

    def notices(self) -> list[tuple[str, bytes]]:
        """What peers delivered since the last call; an idle loop calls this as its progress."""
        if self._agent is None:
            return []
        for handle in [h for h, write in self._leftovers.items() if self._quiet(write)]:
            del self._leftovers[handle]
        try:
            arrived = self._agent.get_new_notifs([UCX])
        except LIBRARY_ERRORS as error:
            raise failure_of(error, "notices").error() from error
        return [
            (agent, text) for agent, texts in arrived.items() for text in texts if text != HELLO
        ]

    def close(self) -> None:
        """Release handles, forget peers, deregister; afterwards the memory may be freed."""
        if self._agent is None:
            return
        for handle in list(self._writes):
            self.release(handle)
        for agent in list(self._peers):
            self.remove_peer(agent)
        try:
            while self._lists:
                self._lists.popitem()[1].release()
            while self._registered:
                self._agent.deregister_memory(self._registered[-1])
                self._registered.pop()
        except LIBRARY_ERRORS as error:
            logger.warning("closing: %s", error)
        self._agent = None
