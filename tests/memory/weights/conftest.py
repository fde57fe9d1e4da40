"""The configurations of published models."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from bench.evidence import models
from fitserve.facts.checkpoint import Checkpoint

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def published() -> Callable[[str], Checkpoint]:
    """A published model's checkpoint by ``ORG/NAME``, as ``aiconfigurator-core`` carries its configuration."""

    def checkpoint(model: str) -> Checkpoint:
        try:
            return models.published(model)
        except LookupError as error:
            pytest.skip(str(error))

    return checkpoint
