"""The pieces of several generations, in the order in which they come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from pdcluster_worker.core.errors import WorkerError
from pdcluster_worker.frontend.generation import Generation, Piece


@dataclass(frozen=True, slots=True)
class Happening:
    """What the ``index``-th generation did: the last of each is its finish or its failure."""

    index: int
    outcome: Piece | WorkerError

    @property
    def last(self) -> bool:
        return isinstance(self.outcome, WorkerError) or self.outcome.finish is not None


async def merged(generations: Sequence[Generation]) -> AsyncGenerator[Happening, None]:
    """Everything until each has ended. Close it, whatever happens."""
    if len(generations) == 1:
        async for happening in _one(0, generations[0]):
            yield happening
        return
    queue: asyncio.Queue[Happening | None] = asyncio.Queue()  # bounded by the longest answers
    tasks = [
        asyncio.create_task(_pump(index, generation, queue))
        for index, generation in enumerate(generations)
    ]
    try:
        left = len(tasks)
        while left:
            found = await queue.get()
            if found is None:
                left -= 1
            else:
                yield found
        for task in tasks:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _pump(index: int, generation: Generation, queue: asyncio.Queue[Happening | None]) -> None:
    try:
        async for happening in _one(index, generation):
            queue.put_nowait(happening)
    finally:
        queue.put_nowait(None)


async def _one(index: int, generation: Generation) -> AsyncGenerator[Happening, None]:
    while True:
        try:
            happening = Happening(index, await generation.piece())
        except WorkerError as error:
            happening = Happening(index, error)
        yield happening
        if happening.last:
            return


async def first_of(happenings: AsyncGenerator[Happening, None]) -> Happening:
    """The first one; a failure is raised, while it can still be an HTTP status."""
    try:
        first = await anext(happenings)
        if isinstance(first.outcome, WorkerError):
            raise first.outcome
    except BaseException:
        await happenings.aclose()
        raise
    return first
