"""The sizes that vLLM's own code registers, measured and computed here.

Each row was measured with vLLM 0.32.0 (CPU wheel, torch 2.13): its model classes were built on torch's meta device, as one rank
of a pretended start on a pretended H100 (compute capability 9.0) or B200 (10.0), before any weight was loaded; then the bytes of
all parameters and buffers were added. ``measured_small.jsonl`` carries small configurations of its own, ``measured_published.jsonl``
names published ones that ``aiconfigurator-core`` 0.12.0 carries.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights import rank_weights


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a table beside this file."""
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


SMALL = rows("measured_small.jsonl")
PUBLISHED = rows("measured_published.jsonl")


def label(row: dict[str, Any]) -> str:
    """A row's name: the model and the settings that are not the defaults."""
    chosen = ",".join(f"{key}={value}" for key, value in row["settings"].items())
    return f"{row['model']}[{chosen}]rank{row['rank']}"


def sizes(checkpoint: Checkpoint, row: dict[str, Any]) -> tuple[int, int] | str:
    """Bytes of parameters and buffers of the row's rank, or why they are not known."""
    found = rank_weights(checkpoint, EngineOptions(vllm_version="0.32.0", **row["settings"]))
    if not isinstance(found, tuple):
        return found.unknown
    rank = found[row["rank"]]
    return rank.param_bytes.expected, rank.buffer_bytes.expected


@pytest.mark.parametrize("row", SMALL, ids=label)
def test_small_models_take_what_vllm_registers(row: dict[str, Any]) -> None:
    """Every family, quantisation and way of dividing takes exactly the bytes that vLLM registers."""
    checkpoint = Checkpoint(config=parse_config(json.dumps(row["config"]).encode()))

    assert (row["param_bytes"], row["buffer_bytes"]) == sizes(checkpoint, row)


@pytest.mark.parametrize("row", PUBLISHED, ids=label)
def test_published_models_take_what_vllm_registers(
    row: dict[str, Any], published: Callable[[str], Checkpoint]
) -> None:
    """Published models take exactly the bytes that vLLM registers for them."""
    checkpoint = published(row["model"])

    assert (row["param_bytes"], row["buffer_bytes"]) == sizes(checkpoint, row)
