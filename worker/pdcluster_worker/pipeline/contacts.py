"""Decode's address book: which instance answers behind a bootstrap address, and what to tell it.

An address is looked up when a request wants it, when a peer behind it fell silent (a restart there
is the proof that releases quarantined pages), or when something is left to be told. At most one
lookup per address is under way, and one starts per ``topology_interval_s`` (F22). Hello goes out
after each lookup until the peer is warm.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pdcluster_worker.core.errors import Overloaded, PeerIncompatible, WorkerError
from pdcluster_worker.core.ports import Contact
from pdcluster_worker.pipeline.effects import Address, Effect, Resolve, Send
from pdcluster_worker.pipeline.peers import PeerTable
from pdcluster_worker.wire.peer import Abort, Hello

LOOKUPS_MAX = 64  # under way at once; clients name addresses, and good ones must not starve
TELLS_MAX = 256  # refusals waiting for one unknown address; the oldest goes first


@dataclass(slots=True)
class _Entry:
    contact: Contact | None = None
    looking: bool = False
    next_at: float = 0.0
    wanted_until: float = 0.0
    refusal: WorkerError | None = None  # the peer said Unwelcome
    trouble: str = "no answer yet"  # of the last lookup
    tells: deque[Abort] = field(default_factory=lambda: deque(maxlen=TELLS_MAX))


class AddressBook:
    """All bootstrap addresses that requests have named. Bounded: unwanted ones are forgotten."""

    def __init__(
        self,
        *,
        peers: PeerTable,
        emit: Callable[[Effect], None],
        interval_s: float,
        forget_s: float,
        entries_max: int,
    ) -> None:
        self._peers = peers
        self._entries_max = entries_max
        self._emit = emit
        self._interval_s = interval_s
        self._forget_s = forget_s
        self._entries: dict[Address, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def want(self, address: Address, now: float) -> str | None:
        """The instance behind ``address`` if pages may be exchanged with it now, else None.

        Raises the peer's refusal, once per lookup, if it is incompatible, and Overloaded when the
        book is full of other addresses that are wanted.
        """
        entry = self._entry(address)
        if entry is None:
            raise Overloaded(f"{len(self._entries)} bootstrap addresses are in use, the limit")
        entry.wanted_until = now + self._forget_s
        if entry.refusal is not None:
            raise entry.refusal
        if entry.contact is not None and self._peers.ready(entry.contact.instance):
            return entry.contact.instance
        return None

    def trouble(self, address: Address) -> str:
        """Why ``address`` has no ready peer."""
        entry = self._entries.get(address)
        reason = entry.trouble if entry else "never looked up"
        return f"prefill at {address[0]}:{address[1]}: {reason}"

    def tell(self, address: Address, message: Abort, *, now: float) -> None:
        """Tell whoever is there, now or once it has been looked up, that a room has ended.

        Dropped where the book is full: the other leg then ends by its own limit.
        """
        entry = self._entry(address)
        if entry is None:
            return
        entry.wanted_until = now + self._forget_s
        entry.tells.append(message)
        self._flush(entry)

    def address_of(self, instance: str) -> Address | None:
        """Where an instance was found."""
        for address, entry in self._entries.items():
            if entry.contact is not None and entry.contact.instance == instance:
                return address
        return None

    def watch(self, address: Address, now: float) -> None:
        """Keep looking at the address of a lost instance: its successor is the proof we need."""
        if (entry := self._entry(address)) is not None:
            entry.wanted_until = now + self._forget_s

    def refused(self, instance: str, error: WorkerError) -> None:
        """The peer said Unwelcome."""
        address = self.address_of(instance)
        if address is not None:
            self._entries[address].refusal = error

    def resolved(self, address: Address, outcome: Contact | WorkerError) -> None:
        """A lookup ended."""
        entry = self._entries.get(address)
        if entry is None:
            return
        entry.looking = False
        entry.refusal = None
        if isinstance(outcome, WorkerError):
            entry.trouble = str(outcome)
            return
        entry.contact = outcome
        entry.trouble = "found, but the handshake did not complete"
        self._peers.superseded(outcome.pod_uid, outcome.instance)
        if outcome.fingerprint != self._peers.intro.fingerprint:
            entry.refusal = PeerIncompatible(
                f"KV fingerprint differs: ours is {self._peers.intro.fingerprint!r}, "
                f"the prefill's at {address[0]}:{address[1]} {outcome.fingerprint!r}"
            )
        elif self._peers.ready(outcome.instance) is None:
            endpoint = (outcome.host, outcome.port)
            self._emit(Send(endpoint, outcome.instance, Hello(intro=self._peers.intro)))
        self._flush(entry)

    def tick(self, now: float) -> None:
        """Start the lookups that are due, the longest due first; forget what nobody wants."""
        for address, entry in list(self._entries.items()):
            if entry.wanted_until < now and not entry.looking:
                del self._entries[address]
        due = [
            (entry.next_at, address)
            for address, entry in self._entries.items()
            if not entry.looking and now >= entry.next_at and not self._idle(entry)
        ]
        free = LOOKUPS_MAX - sum(entry.looking for entry in self._entries.values())
        for _, address in sorted(due)[: max(0, free)]:
            entry = self._entries[address]
            entry.looking = True
            entry.next_at = now + self._interval_s
            self._emit(Resolve(address))

    def _idle(self, entry: _Entry) -> bool:
        """Nothing to look up: the peer is ready and nothing is left to be told."""
        if entry.contact is None or entry.tells:
            return False
        return self._peers.ready(entry.contact.instance) is not None

    def _entry(self, address: Address) -> _Entry | None:
        """Of this address; None where the book is full and nobody in it can go."""
        known = self._entries.get(address)
        if known is not None:
            return known
        if len(self._entries) >= self._entries_max and not self._evict():
            return None
        made = self._entries[address] = _Entry()
        return made

    def _evict(self) -> bool:
        """Let the oldest address go behind which nobody has ever answered."""
        for address, entry in self._entries.items():
            if entry.contact is None and not entry.looking:
                del self._entries[address]
                return True
        return False

    def _flush(self, entry: _Entry) -> None:
        if entry.contact is None:
            return
        endpoint = (entry.contact.host, entry.contact.port)
        while entry.tells:
            self._emit(Send(endpoint, entry.contact.instance, entry.tells.popleft()))
