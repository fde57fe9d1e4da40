"""Fewer blocks than sequences, where each sequence needs one for its state."""

import json
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import KvPlan, Plan
from fitserve.units import GIB, Quantity

HYBRID = {
    "architectures": ["Qwen3NextForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
"""Six layers with a state, two with attention."""

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=round(79.1 * GIB), compute_capability=(9, 0))


def plan(version: str, **given: Any) -> Plan:
    """The plan of a start with 1 GiB of KV cache."""
    return make_plan(
        Request(
            checkpoint=Checkpoint(config=parse_config(json.dumps(HYBRID).encode())),
            model="hybrid",
            device=H100,
            given={"kv_cache_memory_bytes": GIB, "max_num_seqs": 64, "max_num_batched_tokens": 4096, **given},
            version=version,
        )
    )


def blocks(version: str) -> int:
    """The blocks that 1 GiB holds."""
    cache = plan(version).kv_cache
    assert isinstance(cache, KvPlan)
    assert isinstance(cache.num_blocks, Quantity)
    return cache.num_blocks.expected


@pytest.mark.parametrize(
    ("version", "given", "refuses"),
    [
        ("0.32.0", {}, True),
        ("0.20.0", {}, True),
        ("0.19.1", {}, False),
        ("0.32.0", {"enforce_eager": True}, False),
        ("0.32.0", {"compilation_config": {"cudagraph_mode": "NONE"}}, False),
        ("0.32.0", {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, False),
        ("0.32.0", {"compilation_config": {"cudagraph_mode": "full_decode_only"}}, True),
        ("0.32.0", {"optimization_level": 1}, False),
        ("0.32.0", {"optimization_level": 0}, False),
    ],
)
def test_only_graphs_of_whole_steps_need_a_block_a_sequence(
    version: str, given: dict[str, Any], refuses: bool
) -> None:
    """One sequence more than blocks is refused where vLLM counts them, and as many as blocks never are; the cache is told anyway."""
    most = blocks(version)
    enough = plan(version, max_num_seqs=most, **given)
    too_many = plan(version, max_num_seqs=most + 1, **given)

    assert enough.cause is None
    assert too_many.cause == ("state-cache-too-small" if refuses else None)
    assert isinstance(too_many.kv_cache, KvPlan)
    assert isinstance(too_many.kv_cache.num_blocks, Quantity)
    assert too_many.kv_cache.num_blocks.expected == most
