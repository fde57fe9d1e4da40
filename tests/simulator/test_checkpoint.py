"""A checkpoint without weights has the tensors of the real one."""

import math
from pathlib import Path

import pytest

from fitserve.facts.checkpoint.read import read_checkpoint
from fitserve.simulator.checkpoint import tensors
from fitserve.simulator.models import known_models, make_model

GIB = 1 << 30
DENSE = [
    name
    for name, model in known_models().items()
    if model.config["model_type"]
    in ("llama", "qwen2", "qwen3", "gemma", "mistral", "granite", "phi3", "mixtral")
    and model.quantization is None
]


@pytest.mark.parametrize("name", DENSE)
def test_its_tensors_take_what_was_measured(name: str) -> None:
    """All tensors together are the weights that a start on one rank, or all ranks together, was measured to hold."""
    model = known_models()[name]
    row = min(model.measured, key=lambda row: row.tensor_parallel_size * row.pipeline_parallel_size)
    size = sum(2 * math.prod(shape) for shape in tensors(model.config).values())

    assert row.weights_gib * row.tensor_parallel_size * row.pipeline_parallel_size == pytest.approx(
        size / GIB, rel=0.015
    )


def test_it_takes_no_room(tmp_path: Path) -> None:
    """The file is as long as a real one, and nearly none of it is on the disk; a reader of headers takes it."""
    folder = make_model(tmp_path / "model", "meta-llama/Llama-3.1-8B-Instruct")
    seen = (folder / "model.safetensors").stat()
    read = read_checkpoint(str(folder))

    assert read.size_bytes is not None
    assert seen.st_blocks * 512 < 1_000_000
    assert (seen.st_size > read.size_bytes > 16_000_000_000, "safetensors") == (True, read.format)
