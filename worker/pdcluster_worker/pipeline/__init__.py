"""The request protocol, pure: life-cycle tables, queues and decisions over ports.

Nothing here knows torch, zmq, nixl, threads or a clock. Time comes in as a number, effects go out
as values; the roles carry them out and the simulator does too.
"""
