"""`pdcluster generate "text"`: ask a cluster that runs here."""

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console

from pdcluster_operator.cli.ask import Question, answer_table, ask
from pdcluster_operator.cli.common import (
    ClusterOption,
    Output,
    OutputOption,
    control_of,
    find_running,
    print_json,
)
from pdcluster_operator.clock import SystemClock
from pdcluster_operator.errors import AnswerError


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command(help="Ask the model of a cluster that runs here.")
    def generate(
        text: Annotated[str, typer.Argument(help="What to ask.")],
        *,
        cluster: ClusterOption = "",
        max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 128,
        temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
        output: OutputOption = Output.TEXT,
    ) -> None:
        snapshot = control_of(find_running(cluster)).status()
        if not snapshot["endpoint"]:
            raise AnswerError(f"{snapshot['name']} has no router yet: {snapshot['reason']}")
        question = Question(
            text=text, model=snapshot["model"], max_tokens=max_tokens, temperature=temperature
        )
        quiet, said = output is Output.JSON, []

        def show(piece: str) -> None:
            said.append(piece)
            if not quiet:
                _print(piece)

        try:
            answer = asyncio.run(
                ask(snapshot["endpoint"], question, clock=SystemClock(), on_text=show)
            )
        except AnswerError as error:
            if not quiet:
                if said:
                    typer.echo()  # the error gets a line of its own
                raise
            print_json({"error": error.facts})
            raise typer.Exit(error.exit_code) from error
        if quiet:
            print_json(answer.facts())
        else:
            typer.echo()
            Console().print(answer_table(answer))


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
