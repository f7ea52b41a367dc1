"""Puts the command together: our subcommands and those that other packages announce.

A package announces subcommands by an entry point in the group `pdcluster.commands` that names a
function `register(app: typer.Typer) -> None`.
"""

import logging
import sys
from importlib.metadata import entry_points
from typing import Final

import typer
from rich.console import Console

from pdcluster_operator.cli import demo, generate, logs, look, up
from pdcluster_operator.errors import OperatorError

_GROUP: Final = "pdcluster.commands"


def make_app() -> typer.Typer:
    """Return the application with every subcommand."""
    app = typer.Typer(
        name="pdcluster",
        help="Serve language models with prefill and decode apart.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for module in (up, demo, generate, look, logs):
        module.register(app)
    for entry in sorted(entry_points(group=_GROUP), key=lambda found: found.name):
        try:
            entry.load()(app)
        except ImportError as error:  # half an installation must not take the rest along
            print(f"pdcluster: {entry.name} is not available: {error}", file=sys.stderr)
    return app


def run() -> None:
    """Run; what the person can act on is one line, without a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        make_app()()
    except OperatorError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:  # a disk that is full, a folder that must not be written
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}", 1)


def _fail(message: str, exit_code: int) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print("[red]error:[/]", end=" ", highlight=False)
    console.print(message, markup=False, highlight=False)
    sys.exit(exit_code)
