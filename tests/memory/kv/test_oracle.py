"""Against vLLM's own answers for published models on pretended devices, kept beside the checkout."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB, Unknown

REFERENCE = Path(__file__).parents[4] / "shared"
ORACLE = REFERENCE / "kv-oracle.jsonl"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not ORACLE.exists(), reason="the reference folder is not beside the checkout"),
    pytest.mark.skipif(
        find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
    ),
]


def published(model: str) -> ModelConfig:
    """The configuration of a published model, from aiconfigurator-core."""
    found = find_spec("aiconfigurator_core")
    assert found is not None
    assert found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0]) / "model_configs"
    name = model.replace("/", "--")
    quant = folder / f"{name}_hf_quant_config.json"
    return parse_config(
        (folder / f"{name}_config.json").read_bytes(),
        hf_quant=quant.read_bytes() if quant.exists() else None,
    )


def options_of(row: dict[str, Any]) -> EngineOptions:
    """A row's settings."""
    device, resolved, settings = row["device"], row["resolved"], row["settings"]
    major, minor = device["compute_capability"].split(".")
    return EngineOptions(
        vllm_version=row["vllm_version"],
        max_model_len=resolved["max_model_len"],
        max_num_seqs=resolved["max_num_seqs"],
        max_num_batched_tokens=resolved["max_num_batched_tokens"],
        tensor_parallel_size=settings["tensor_parallel_size"],
        kv_cache_dtype=settings["kv_cache_dtype"],
        device=Device(
            name=device["name"],
            total_bytes=round(device["total_gib"] * GIB),
            compute_capability=(int(major), int(minor)),
        ),
    )


def agrees(expected: dict[str, Any], found: KvCache | Refusal | Unknown) -> bool:
    """True where every number that vLLM prints is the same."""
    if "error" in expected:
        return (
            isinstance(found, Refusal)
            and round(found.needed_bytes / GIB, 2) == expected["needed_gib"]
            and found.estimated_max_model_len == expected["estimated_max_model_len"]
        )
    return (
        isinstance(found, KvCache)
        and found.num_blocks == expected["num_blocks"]
        and found.tokens == expected["tokens"]
        and found.max_concurrency == expected["max_concurrency"]
        and [(group["block_size"], group["layers"], group["page_bytes"]) for group in expected["groups"]]
        == [(group.block_size, group.layers, group.page_bytes) for group in found.groups]
    )


def test_capacity_is_vllms_own(record_property: Callable[[str, object], None]) -> None:
    """At least 95 of 100 answers equal vLLM's in every number, and no other number is given for the rest."""
    rows = [json.loads(line) for line in ORACLE.read_text(encoding="utf-8").splitlines()]
    asked, misses, wrong = 0, [], []
    for row in rows:
        options = options_of(row)
        specs = layer_specs(published(row["model"]), options)
        for expected in row["capacity"]:
            asked += 1
            size = expected["kv_cache_memory_bytes"]
            found = specs if isinstance(specs, Unknown) else capacity(specs, options, size)
            if not agrees(expected, found):
                misses.append(f"{row['model']} {row['vllm_version']} {row['settings']} {size}: {found}")
                wrong += [] if isinstance(found, Unknown) else [misses[-1]]
    record_property("answers", asked)
    record_property("misses", misses)

    assert [] == wrong
    assert 0.95 <= (asked - len(misses)) / asked, misses
