"""KV memory of one worker: its pool of pages and who owns which of them.

`pool` holds the bytes and is the only module here that needs torch; the bookkeeping (allocator,
leases, rows) is plain integers, so that the simulator runs it unchanged.
"""
