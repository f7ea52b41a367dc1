"""`pdcluster demo FILE`: bring a cluster up, ask one question, show what it cost, take it down."""

import asyncio
from typing import Annotated, Final

import typer
from rich.console import Console

from pdcluster_operator.cli.ask import Answer, Question, answer_table, ask
from pdcluster_operator.cli.common import FileArgument, read_manifest
from pdcluster_operator.cli.tail import tail
from pdcluster_operator.cli.up import keep_showing, stop_on_signals
from pdcluster_operator.cli.view import View, make_view
from pdcluster_operator.clock import Clock, SystemClock
from pdcluster_operator.errors import LocalRunError
from pdcluster_operator.local.session import Session
from pdcluster_operator.settings import load_settings

_QUESTION: Final = "What is the capital of France? Answer in one sentence."
_POLL_S: Final = 0.1
_TAIL_LINES: Final = 15
_SERVING_TIMEOUT_S: Final = 900.0  # a first run downloads the model


def register(app: typer.Typer) -> None:
    """Add the subcommand."""

    @app.command(help="Bring a cluster up, ask one question, show what it cost, take it down.")
    def demo(
        file: FileArgument,
        *,
        question: Annotated[str, typer.Option(help="What to ask.")] = _QUESTION,
        max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 64,
    ) -> None:
        cluster, console = read_manifest(file), Console()
        session = Session(cluster, load_settings())
        asyncio.run(_demo(session, console, question, max_tokens))


async def _demo(session: Session, console: Console, text: str, max_tokens: int) -> None:
    view, clock = make_view(console, plain=False), SystemClock()
    begun = clock.now()
    async with session:
        stop_on_signals(session, view)
        with view:
            await _until_serving(session, view)
        console.print(f"serving after {clock.now() - begun:.1f} s\n", style="dim", highlight=False)
        console.print(f"> {text}", style="bold", markup=False)
        snapshot = session.snapshot()
        question = Question(text=text, model=snapshot["model"], max_tokens=max_tokens)
        try:
            answer = await _answer(snapshot["endpoint"], question, clock, console)
            console.print("\n")
            console.print(answer_table(answer))
        finally:
            session.stop()
            await session.ended()


async def _until_serving(session: Session, view: View) -> None:
    """Show the start; raises `LocalRunError` when it is in vain, takes too long, or was ended."""
    clock = SystemClock()
    deadline = clock.now() + _SERVING_TIMEOUT_S
    showing = asyncio.create_task(keep_showing(session, view))
    try:
        while session.phase != "serving":
            session.check()
            if session.phase in ("stopping", "ended"):
                raise LocalRunError("interrupted")
            if why := session.hopeless():
                raise LocalRunError(f"{why}\n{_last_words(session, why)}")
            if clock.now() >= deadline:
                reason = session.snapshot()["reason"]
                raise LocalRunError(f"no service after {_SERVING_TIMEOUT_S:g} s: {reason}")
            await clock.sleep(_POLL_S)
    finally:
        showing.cancel()
        view.show(session.snapshot())


def _last_words(session: Session, why: str) -> str:
    """Return the end of the log of the pod that `why` begins with."""
    log = session.rundir.logs / why.split(":", maxsplit=1)[0] / "worker.log"
    return f"{log} ends with:\n{tail(log, _TAIL_LINES)}" if log.exists() else ""


async def _answer(endpoint: str, question: Question, clock: Clock, console: Console) -> Answer:
    def show(text: str) -> None:
        console.out(text, end="", highlight=False)
        console.file.flush()

    return await ask(endpoint, question, clock=clock, on_text=show)
