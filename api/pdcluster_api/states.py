"""The stages of a request, by role. The same words appear in status, metrics, logs and docs."""

from enum import StrEnum


class Stage(StrEnum):
    """Where a live request is."""

    # prefill
    BOOTSTRAP = "bootstrap"  # no decode has published pages for the room yet
    WAITING = "waiting"  # destination known (or none needed); waits for memory and the engine
    FORWARD = "forward"  # some of its prompt is computed or being computed
    INFLIGHT = "inflight"  # computed; its last writes are not settled yet
    # decode
    HANDSHAKE = "handshake"  # the prefill's topology or the peer handshake is missing
    PREALLOC = "prealloc"  # handshake done; waits for pages, a metadata row, a slot
    TRANSFER = "transfer"  # pages published; the KV is on its way
    COMMITTED = "committed"  # KV present; waits to join the running batch
    RUNNING = "running"  # in the running batch
    RETRACTED = "retracted"  # pushed out of the pool; its KV is in host memory until there is room
    # either: ended for the client, but a peer may still touch its pages
    DEFERRED = "deferred"
