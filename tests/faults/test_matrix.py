"""Faults against real workers: each kind, on each side, in each stage of a request.

Only `make test-full` runs it until it has been steady for a while; a subset with each pair of
(fault, stage), (fault, side) and (stage, side) that can be is chosen already, for CI.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.cells import Cell, Fault, matrix, pairwise
from tests.faults.record import LONG, record
from tests.faults.runner import Oracle, Run, oracle
from tests.faults.workers import Pair, pair

pytestmark = [
    pytest.mark.real,
    pytest.mark.full,
    pytest.mark.timeout(150),
    pytest.mark.asyncio(loop_scope="module"),
]

STOP_S = 4.0  # beyond `heartbeat_timeout_s` and `orphan_ttl_s`
LONG_STOP_S = 30.0


@dataclass(slots=True)
class Stand:
    """The pair that is kept from cell to cell."""

    pair: Pair
    right: Oracle
    clean: bool = True  # false: a cell has failed, the next one gets new processes


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    state: Path = tmp_path_factory.mktemp("faults")
    async with pair(state) as both:
        yield Stand(both, await oracle(both))


def params() -> list[object]:
    """Every cell that can be; what is not of the subset is for the full run."""
    cells = [cell for cell in matrix() if not cell.not_applicable]
    usual = [
        pytest.param(cell, STOP_S, id=str(cell), marks=[] if pairwise(cell) else [pytest.mark.full])
        for cell in cells
    ]
    long = [
        pytest.param(cell, LONG_STOP_S, id=f"{cell}{LONG}", marks=[pytest.mark.full])
        for cell in cells
        if cell.fault is Fault.STOP
    ]
    return [*usual, *long]


@pytest.mark.parametrize(("cell", "stop_s"), params())
async def test_fault(stand: Stand, cell: Cell, stop_s: float) -> None:
    if not stand.clean:
        await stand.pair.start()
    stand.clean = False
    outcome = await Run(stand.pair, stand.right, cell, stop_s=stop_s).run()
    record(outcome, variant=LONG if stop_s == LONG_STOP_S else "")
    assert not outcome.problems, "\n".join([*outcome.problems, str(outcome)])
    stand.clean = True
