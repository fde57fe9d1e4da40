"""From layers to blocks by the code of many releases, as a table.

The rows were printed by each release's own ``v1/core/kv_cache_utils.py`` (0.10.2 to 0.31.0) for layers drawn at random:
windows beside full attention, chunks, latent attention with an indexer, states, several pipeline stages, overrides,
the hybrid manager switched off. Adding a row needs no Python.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fitserve.memory.kv import KvCache, LayerSpec, Refusal, capacity
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB

LINES = Path(__file__).with_name("release_cases.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in LINES]
RELEASES = sorted({case["release"] for case in CASES})
NOTHING_IN_FLIGHT = Device(name="cpu", total_bytes=GIB)
"""The rows count one batch a stage, as the CPU backend does."""


def specs_of(case: dict[str, Any]) -> tuple[LayerSpec, ...]:
    """A case's layers; where there is one stage, only their number is written down."""
    specs = []
    first = 0
    for layer in case["layers"]:
        positions = layer["layers"]
        if isinstance(positions, int):
            positions = list(range(first, first + positions))
            first += len(positions)
        fields = {**layer, "layers": tuple(positions), "stages": tuple(layer.get("stages", ()))}
        specs.append(LayerSpec(**fields))
    return tuple(specs)


def numbers(found: object, expected: dict[str, Any]) -> dict[str, Any]:
    """What was computed, under the names of a row."""
    if isinstance(found, KvCache):
        return {
            "num_blocks": found.num_blocks,
            "tokens": found.tokens,
            "max_concurrency": found.max_concurrency,
        }
    assert isinstance(found, Refusal), found
    if "cause" in expected:
        return {"cause": found.cause}
    return {
        "needed_gib": round(found.needed_bytes / GIB, 2),
        "estimated_max_model_len": found.estimated_max_model_len,
    }


@pytest.mark.parametrize("release", RELEASES)
def test_blocks_are_that_releases_own(release: str) -> None:
    """Every row of a release has that release's blocks, tokens and concurrency, or its refusal."""
    wrong = []
    for case in CASES:
        if case["release"] != release:
            continue
        options = EngineOptions(vllm_version=release, device=NOTHING_IN_FLIGHT, **case["options"])
        found = numbers(capacity(specs_of(case), options, case["kv_cache_bytes"]), case["expected"])
        if found != case["expected"]:
            wrong.append((case, found))

    assert [] == wrong
