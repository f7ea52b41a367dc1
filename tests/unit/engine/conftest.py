"""A tiny model and an engine of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pdcluster_worker.models.source import prepare
from tests.unit.engine.rig import Rig


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("tiny://llama?seed=0", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def rig(tiny: Path) -> Iterator[Rig]:
    made = Rig(tiny)
    yield made
    made.engine.close()
