"""Settings that change what a rank holds: quantisation while loading, balanced experts, data parallel ranks, the cache's type.

Rows of ``measured_settings.jsonl`` were measured like those of ``measured_small.jsonl``, whose configurations they are, on the first of the
pretended ranks. vLLM registers weights in 16 bit and quantises them while it loads: ``quantised_bytes`` are those of the layers whose
method does so.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError, UsageError
from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.budget import rank_budgets
from fitserve.memory.options import EngineOptions
from fitserve.memory.resolve import Resolved, resolve
from fitserve.memory.weights.ranks import RankWeights, config_weights
from fitserve.units import GIB, Quantity, Unknown

FOLDER = Path(__file__).parent
ROWS = [json.loads(line) for line in (FOLDER / "measured_settings.jsonl").read_text().splitlines()]
CONFIGS: dict[str, dict[str, Any]] = {}
for _line in (FOLDER / "measured_small.jsonl").read_text().splitlines():
    _row = json.loads(_line)
    CONFIGS.setdefault(_row["model"], _row["config"])

PLAIN = [row for row in ROWS if "quantised_bytes" not in row]
ONLINE = [row for row in ROWS if "quantised_bytes" in row]
SMALLEST_GROUP = 32
"""Numbers that share a scale in the finest of the formats."""


def config(model: str) -> ModelConfig:
    """One of the small configurations, whose numbers are in 16 bit."""
    return parse_config(json.dumps(CONFIGS[model]).encode())


def settled(model: str, asked: dict[str, Any]) -> Resolved:
    """Settings with all defaults, on an H100."""
    return resolve(config(model), asked, version="0.32.0", device=EngineOptions().device)


def first_rank(found: tuple[RankWeights, ...] | Unknown) -> RankWeights:
    """The first rank, which must be known."""
    assert isinstance(found, tuple), found
    return found[0]


def label(row: dict[str, Any]) -> str:
    """A row's name."""
    return f"{row['model']}{row['settings']}"


@pytest.mark.parametrize("row", PLAIN, ids=label)
def test_ranks_hold_what_vllm_registers(row: dict[str, Any]) -> None:
    """Data parallel ranks share experts with and without expert parallelism; copies of experts stand beside them."""
    found = first_rank(config_weights(config(row["model"]), settled(row["model"], row["settings"]).options))

    measured = found.param_bytes.expected, found.buffer_bytes.expected
    assert measured == (row["param_bytes"], row["buffer_bytes"])


@pytest.mark.parametrize("row", ONLINE, ids=label)
def test_what_is_quantised_while_loading(row: dict[str, Any]) -> None:
    """Exactly the layers that its method covers take half of their bytes, and scales: at most one byte for 32 numbers."""
    found = first_rank(config_weights(config(row["model"]), settled(row["model"], row["settings"]).options))

    left = row["param_bytes"] - row["quantised_bytes"] // 2
    scales = found.param_bytes.expected - left
    numbers = row["quantised_bytes"] // 2
    if row["settings"]["quantization"] == "mxfp8":
        assert scales == numbers // SMALLEST_GROUP
    else:
        assert 0 <= scales <= numbers // SMALLEST_GROUP
        assert (scales > 0) == (numbers > 0)


def test_only_the_stack_of_layers_is_offloaded() -> None:
    """More than the layers hold is not moved: embeddings and the output layer stay."""
    resolved = settled("llama", {"cpu_offload_gb": 10})
    weights = config_weights(config("llama"), resolved.options)
    held = rank_budgets(config("llama"), resolved, weights)[0].weights_bytes

    embeddings = 2 * 32064 * 512 * 2
    assert isinstance(held, Quantity)
    assert held.expected == embeddings + 2 * 512 + first_rank(weights).buffer_bytes.expected
    assert first_rank(weights).total_bytes - held.expected < GIB


@pytest.mark.parametrize(
    ("asked", "away"),
    [
        ({"offload_group_size": 2}, 1),
        ({"offload_group_size": 5, "offload_num_in_group": 4}, 3),
        ({"offload_group_size": 5, "offload_num_in_group": 4, "offload_prefetch_step": 2}, 2),
        ({"offload_group_size": 8}, 0),
        ({"offload_group_size": 1}, 4),
    ],
)
def test_layers_that_are_fetched_ahead(asked: dict[str, Any], away: int) -> None:
    """Of five layers the last of each group wait in the host's memory; as many as are fetched ahead stay in buffers."""
    resolved = settled("llama", asked)
    weights = config_weights(config("llama"), resolved.options)
    held = rank_budgets(config("llama"), resolved, weights)[0].weights_bytes

    layer = 2 * (512 * 1024 + 512 * 512 + 3 * 512 * 1408 + 2 * 512)
    assert isinstance(held, Quantity)
    assert first_rank(weights).total_bytes - held.expected == away * layer


ODD: tuple[Any, ...] = (None, 0, -1, 1.5, "x", [], {}, True, 10**12)
CHANGED = (
    "num_nextn_predict_layers",
    "spatial_merge_size",
    "mm_tokens_per_image",
    "downsample_ratio",
    "scale_factor",
    "patch_size",
    "hidden_size",
    "num_key_value_heads",
    "vision_config",
)
ASKED: tuple[dict[str, Any], ...] = (
    {"enable_lora": True, "max_loras": 4, "fully_sharded_loras": True, "tensor_parallel_size": 2},
    {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
    {"limit_mm_per_prompt": 3},
    {"limit_mm_per_prompt": "{"},
    {"mm_encoder_tp_mode": "data", "tensor_parallel_size": 2},
    {"enable_eplb": True, "eplb_config": 3},
    {"offload_group_size": 3, "offload_num_in_group": -1, "offload_prefetch_step": -1},
)


@given(
    model=st.sampled_from(sorted(CONFIGS)),
    change=st.tuples(st.sampled_from(CHANGED), st.sampled_from(ODD), st.booleans()),
    asked=st.sampled_from(ASKED),
    version=st.sampled_from(("0.9.2", "0.32.0")),
)
def test_damage_is_an_answer_or_an_error_with_words(
    model: str, change: tuple[str, Any, bool], asked: dict[str, Any], version: str
) -> None:
    """Whatever stands in a configuration, there is a size, an unknown, or an error of the user's."""
    name, value, in_part = change
    damaged = json.loads(json.dumps(CONFIGS[model]))
    parts = [part for part in damaged.values() if isinstance(part, dict)]
    (parts[0] if in_part and parts else damaged)[name] = value
    try:
        read = parse_config(json.dumps(damaged).encode())
        resolved = resolve(read, asked, version=version, device=EngineOptions().device)
        weights = config_weights(read, resolved.options)
        budget = rank_budgets(read, resolved, weights)[0]
    except (InputError, UsageError):
        return

    assert isinstance(budget.weights_bytes, Unknown) is isinstance(weights, Unknown)


@pytest.mark.parametrize(
    "asked",
    [
        {"eplb_config": {"num_redundant_experts": 8}},
        {"enable_eplb": False, "num_redundant_experts": 8},
    ],
)
def test_without_the_switch_there_are_no_copies_of_experts(asked: dict[str, Any]) -> None:
    """Their number counts only with ``--enable-eplb``."""
    assert settled("mixtral", asked).options.num_redundant_experts == 0
