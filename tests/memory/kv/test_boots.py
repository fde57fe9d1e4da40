"""Against measured boots: the blocks that vLLM logged for the memory that it logged."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.model_config import parse_config
from fitserve.memory.kv import KvCache, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import Quantity, Unknown

REFERENCE = Path(__file__).parents[4] / "shared"
BOOTS = REFERENCE / "truth.jsonl"
HOPPER = ("H100", "H200", "GH200")
BLACKWELL = {"B200": (10, 0), "B300": (10, 0), "5090": (12, 0), "RTX PRO": (12, 0), "GB10": (12, 1)}

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not BOOTS.exists(), reason="the reference folder is not beside the checkout"),
]


def complete_boots() -> list[dict[str, Any]]:
    """Boots of a controlled campaign: everything that decides the blocks is known."""
    rows = [json.loads(line) for line in BOOTS.read_text(encoding="utf-8").splitlines()]
    return [
        row
        for row in rows
        if row["completeness"] == "full"
        and row.get("kv_available_gib")
        and row.get("num_blocks")
        and row.get("model_config")
        and (REFERENCE / "models" / row["model_config"].replace("/", "--")).exists()
        and re.fullmatch(r"\d+\.\d+\.\d+", row.get("vllm_version") or "")
    ]


def capability(name: str) -> tuple[int, int]:
    """The compute capability of a device by its name."""
    if any(part in name for part in HOPPER):
        return (9, 0)
    return next((value for part, value in BLACKWELL.items() if part in name), (8, 0))


def options_of(row: dict[str, Any]) -> EngineOptions:
    """A boot's settings: its flags over vLLM's defaults, as the log shows them."""
    said = {**row["defaults"], **row["flags"]} | {k: v for k, v in row["resolved"].items() if v is not None}
    names = EngineOptions.__struct_fields__
    known = {
        name: said[name]
        for name in names
        if name in said and name not in ("device", "quantization", "gpu_memory_utilization")
    }
    device = Device(name=row["gpu_name"], total_bytes=1, compute_capability=capability(row["gpu_name"]))
    return EngineOptions(**{**known, "vllm_version": row["vllm_version"], "device": device})


def stage_sizes(row: dict[str, Any], options: EngineOptions) -> list[Quantity]:
    """The logged memory of every pipeline stage: the smallest of its ranks."""
    printed = row.get("per_rank") or {}
    stages = []
    for stage in range(options.pipeline_parallel_size):
        sizes = [
            ranks["kv_gib"]
            for name, ranks in printed.items()
            if options.pipeline_parallel_size == 1 or re.search(rf"PP{stage}(?!\d)", name)
        ]
        stages.append(Quantity.printed_gib(f"{min(sizes or [row['kv_available_gib']]):.2f}", "log"))
    return stages


def test_measured_boots_have_the_logged_blocks() -> None:
    """Within the rounding of the logged memory, the blocks are those that vLLM logged."""
    boots = complete_boots()
    wrong = []
    for row in boots:
        options = options_of(row)
        folder = REFERENCE / "models" / row["model_config"].replace("/", "--")
        specs = layer_specs(parse_config((folder / "config.json").read_bytes()), options)
        assert not isinstance(specs, Unknown), (row["id"], specs)
        sizes = stage_sizes(row, options)
        low = capacity(specs, options, [size.low for size in sizes])
        high = capacity(specs, options, [size.high for size in sizes])
        if not (
            isinstance(low, KvCache)
            and isinstance(high, KvCache)
            and low.num_blocks <= row["num_blocks"] <= high.num_blocks
        ):
            wrong.append((row["id"], row["model_config"], row["num_blocks"], low, high))

    assert len(boots) >= 30
    assert [] == wrong
