"""The control API of a worker: gRPC, versioned by package."""
