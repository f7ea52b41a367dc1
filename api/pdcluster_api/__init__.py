"""What operator, workers and tools agree on. Standard library only, plus gRPC stubs."""

__version__ = "0.1.0"
