"""The `pdcluster` command."""

from pdcluster_operator.cli.app import main

__all__ = ["main"]
