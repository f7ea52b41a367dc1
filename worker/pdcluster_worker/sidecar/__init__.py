"""The small process beside a worker: health and status over gRPC, also when the worker is dead.

Nothing here imports torch or the engine; it starts in well under a second.
"""
