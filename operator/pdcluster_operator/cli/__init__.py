"""The `pdcluster` command."""

import sys


def main() -> None:
    """Run the command. What it needs is imported here: that takes a second, and a Ctrl-C meanwhile
    is a wish to end like any other."""
    try:
        from pdcluster_operator.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
