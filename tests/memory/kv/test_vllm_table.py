"""vLLM's own blocks, tokens and refusals for many architectures, as a table.

The rows were printed by ``programs/ask_vllm.py`` under vLLM 0.32.0 (CPU build): every model was built without memory
for its weights, then vLLM's own functions laid out the cache. Adding a row needs no Python.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB, Unknown

FOLDER = Path(__file__).parent
CONFIGS: dict[str, dict[str, Any]] = json.loads((FOLDER / "vllm_configs.json").read_text(encoding="utf-8"))
CASES = [json.loads(line) for line in (FOLDER / "vllm_cases.jsonl").read_text(encoding="utf-8").splitlines()]
CPU = Device(name="cpu", total_bytes=64 * GIB)


def name_of(case: dict[str, Any]) -> str:
    """A case's name: its model and what is unusual about it."""
    return "-".join([case["model"], *(f"{key}={value}" for key, value in case["settings"].items())])


def options_of(case: dict[str, Any]) -> EngineOptions:
    """A case's settings; float32 states, as on the machine that printed the rows."""
    return EngineOptions(
        vllm_version="0.32.0", device=CPU, mamba_ssm_cache_dtype="float32", **case["settings"]
    )


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_capacity_is_vllms_own(case: dict[str, Any]) -> None:
    """Layers, blocks, tokens, concurrency and refusals are those that vLLM computes."""
    data, expected, options = CONFIGS[case["model"]], case["expected"], options_of(case)

    specs = layer_specs(ModelConfig(data=data, text=data), options)

    assert not isinstance(specs, Unknown), specs
    layers = [
        {
            "kind": spec.kind,
            "block_size": spec.block_size,
            "page_bytes": spec.page_bytes,
            "count": len(spec.layers),
        }
        for spec in specs
    ]
    assert sorted(expected["layers"], key=str) == sorted(layers, key=str)
    if specs:
        found = capacity(specs, options, case["kv_cache_bytes"])
        assert expected_capacity(expected) == actual_capacity(found)


def expected_capacity(expected: dict[str, Any]) -> dict[str, Any]:
    """What a row says of the capacity."""
    if "refused" in expected:
        return dict(expected["refused"])
    return {key: expected[key] for key in ("num_blocks", "tokens", "max_concurrency")}


def actual_capacity(found: KvCache | Refusal | Unknown) -> dict[str, Any]:
    """The same of what was computed."""
    if isinstance(found, KvCache):
        return {
            "num_blocks": found.num_blocks,
            "tokens": found.tokens,
            "max_concurrency": found.max_concurrency,
        }
    assert isinstance(found, Refusal), found
    if found.cause == "kv-pages-not-unifiable":
        return {"cause": found.cause}
    return {
        "needed_gib": round(found.needed_bytes / GIB, 2),
        "estimated_max_model_len": found.estimated_max_model_len,
    }
