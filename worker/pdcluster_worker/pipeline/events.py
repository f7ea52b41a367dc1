"""What can happen to a request where tokens are decoded; two life-cycle tables share it."""

from enum import StrEnum


class Event(StrEnum):
    """Of one request."""

    SUBMITTED = "submitted"
    REACHED = "prefill reached"  # decode
    ADMITTED = "admitted"
    DELIVERED = "KV and row delivered"  # decode
    CHUNK = "chunk computed"  # aggregated
    COMPUTED = "prompt computed"  # aggregated
    JOINED = "joined the batch"
    PUSHED_OUT = "retracted"
    RESUMED = "resumed"
    FINISHED = "finished"
    QUIET = "quiet"
    FAILED = "failed"
