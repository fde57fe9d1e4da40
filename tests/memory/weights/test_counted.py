"""Weights are counted once for settings that no weight depends on, and again for all others."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Drafting, EngineOptions, LoraOptions
from fitserve.memory.weights.counted import INDIFFERENT, INDIFFERENT_WITHOUT_ADAPTERS, CountedWeights
from fitserve.memory.weights.families.registry import FAMILIES
from fitserve.memory.weights.rank_weights import rank_weights
from fitserve.memory.weights.ranks import config_weights

LINES = (Path(__file__).parent / "measured_small.jsonl").read_text(encoding="utf-8").splitlines()
CONFIGS = {row["model"]: parse_config(json.dumps(row["config"]).encode()) for row in map(json.loads, LINES)}
DRAFTING = Drafting(method="mtp", tokens=1)
OTHER: dict[str, Any] = {
    "max_model_len": 17,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.5,
    "decode_context_parallel_size": 2,
    "block_size": 64,
    "kv_cache_dtype": "fp8",
    "kv_cache_memory_bytes": 1 << 30,
    "num_gpu_blocks_override": 10,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": False,
    "disable_hybrid_kv_cache_manager": True,
    "async_scheduling": True,
    "enforce_eager": True,
    "max_cudagraph_capture_size": 8,
    "mamba_cache_mode": "align",
    "mamba_block_size": 1024,
    "mamba_cache_dtype": "float32",
    "mamba_ssm_cache_dtype": "float32",
    "cpu_offload_bytes": 1 << 30,
    "offload_group_size": 2,
    "offload_num_in_group": 2,
    "offload_prefetch_step": 2,
}
"""A value beside the default for each setting that no weight should depend on."""


def test_every_indifferent_setting_is_tried() -> None:
    """The table above covers them all."""
    assert set(OTHER) == INDIFFERENT | INDIFFERENT_WITHOUT_ADAPTERS


@pytest.mark.parametrize("name", sorted(OTHER))
@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_a_setting_changes_no_weight(model: str, name: str) -> None:
    """Not for any family of models, with adapters and drafting where it is called indifferent to them."""
    lora = LoraOptions() if name in INDIFFERENT else None
    for options in (EngineOptions(lora=lora), EngineOptions(drafting=DRAFTING)):
        changed = msgspec.structs.replace(options, **{name: OTHER[name]})

        assert config_weights(CONFIGS[model], options) == config_weights(CONFIGS[model], changed)


@pytest.mark.parametrize(
    "change",
    [
        {"tensor_parallel_size": 2},
        {"dtype": "float32"},
        {"quantization": "fp8"},
        {"lora": LoraOptions(), "max_num_seqs": 1024},
        {"lora": LoraOptions(max_lora_rank=64)},
        {"pipeline_parallel_size": 2},
    ],
)
def test_counted_as_if_alone(change: dict[str, Any]) -> None:
    """What decides is counted anew, in either order."""
    checkpoint = Checkpoint(config=CONFIGS[min(CONFIGS)])
    plain, changed = EngineOptions(), EngineOptions(**change)
    for order in ((plain, changed, plain), (changed, plain, changed)):
        counted = CountedWeights(checkpoint)

        assert [counted.of(one) for one in order] == [rank_weights(checkpoint, one) for one in order]


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_every_family_is_there(architecture: str) -> None:
    """The table names a module and a function that exist."""
    family = FAMILIES[architecture]
    module = import_module(f"fitserve.memory.weights.families.{family.module}")

    assert callable(getattr(module, family.function))
