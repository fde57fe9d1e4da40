"""The configurations of published models."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def published() -> Callable[[str], Checkpoint]:
    """A published model's checkpoint by ``ORG/NAME``, as ``aiconfigurator-core`` carries its configuration."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("aiconfigurator-core is not installed: pip install aiconfigurator-core==0.12.0")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model_configs"

    def checkpoint(model: str) -> Checkpoint:
        stem = model.replace("/", "--")
        text = folder / f"{stem}_config.json"
        if not text.exists():
            pytest.skip(f"this aiconfigurator-core carries no configuration of {model}")
        quant = folder / f"{stem}_hf_quant_config.json"
        hf_quant = quant.read_bytes() if quant.exists() else None
        return Checkpoint(config=parse_config(text.read_bytes(), hf_quant=hf_quant))

    return checkpoint
