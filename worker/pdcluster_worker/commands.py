"""The worker's subcommands of ``pdcluster``, found through the entry-point group."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pdcluster_worker.core.settings import default_cache_dir
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.progress import StreamProgress
from pdcluster_worker.models.source import prepare


def register(app: typer.Typer) -> None:
    """Add ``pdcluster model``."""
    model = typer.Typer(help="Models on this machine.", no_args_is_help=True)
    app.add_typer(model, name="model")

    @model.callback()
    def _model() -> None:
        """Models on this machine."""

    @model.command("prepare")
    def _prepare(
        source: Annotated[str, typer.Argument(help="As spec.model.source of a PDCluster.")],
        cache_dir: Annotated[Path | None, typer.Option(help="Where converted models stay.")] = None,
    ) -> None:
        """Fetch and convert a model now, so that workers start at once. Prints its folder."""
        try:
            folder = prepare(
                source, cache_dir or default_cache_dir(), progress=StreamProgress(sys.stderr)
            )
        except ModelError as error:
            sys.stderr.write(f"{error}\n")
            raise typer.Exit(1) from error
        sys.stdout.write(f"{folder}\n")
