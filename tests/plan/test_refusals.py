"""Combinations that vLLM refuses by themselves: certain, whatever the memory, with what to change."""

import json
from typing import Any

import pytest

from fitserve.errors import UsageError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.devices import find_device
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import Plan

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
MIXTRAL = {**DENSE, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
AWQ = {**DENSE, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
PACKED = {**DENSE, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
QWEN3 = {**DENSE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
RETIRED = {**DENSE, "architectures": ["InternLMForCausalLM"]}
NIBBLES = {**DENSE, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
GGUF = {**DENSE, "quantization_config": {"quant_method": "gguf"}}
SPARSE = {
    **DENSE,
    "architectures": ["DeepseekV32ForCausalLM"],
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 512,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}


def plan(config: dict[str, Any], gpu: str, version: str, *, gpus: int | None = None, **given: Any) -> Plan:
    """The plan of a model on devices of the catalogue."""
    facts = find_device(gpu)
    assert facts is not None
    device = Device(
        name=facts.name, total_bytes=facts.total_bytes, compute_capability=facts.compute_capability
    )
    checkpoint = Checkpoint(config=parse_config(json.dumps(config).encode()))
    return make_plan(
        Request(checkpoint=checkpoint, model="model", device=device, given=given, version=version, gpus=gpus)
    )


@pytest.mark.parametrize(
    ("config", "gpu", "version", "given", "cause", "option"),
    [
        (
            DENSE,
            "H100",
            "0.32.0",
            {"enable_expert_parallel": True},
            "unknown-flag",
            "--no-enable-expert-parallel",
        ),
        (
            DENSE,
            "H100",
            "0.9.2",
            {"enable_expert_parallel": True},
            "unknown-flag",
            "--no-enable-expert-parallel",
        ),
        (
            DENSE,
            "H100",
            "0.32.0",
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 3},
            "heads-not-divisible",
            "--decode-context-parallel-size 2",
        ),
        (
            DENSE,
            "H100",
            "0.32.0",
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 2},
            "heads-not-divisible",
            "--decode-context-parallel-size 1",
        ),
        (
            {**DENSE, "num_attention_heads": 24, "hidden_size": 1536},
            "H100",
            "0.32.0",
            {"tensor_parallel_size": 24, "decode_context_parallel_size": 8},
            "heads-not-divisible",
            "--decode-context-parallel-size 6",
        ),
        (
            SPARSE,
            "H100",
            "0.26.0",
            {"kv_cache_dtype": "fp8_e4m3"},
            "attention-backend-unsupported",
            "--kv-cache-dtype fp8",
        ),
        (QWEN3, "H100", "0.6.6", {}, "architecture-unsupported", None),
        (RETIRED, "H100", "0.33.0", {}, "architecture-unsupported", None),
        (AWQ, "H100", "0.32.0", {"quantization": "fp8"}, "quantization-unsupported", None),
        (AWQ, "H100", "0.9.2", {"quantization": "gptq_marlin"}, "quantization-unsupported", None),
        (PACKED, "H100", "0.32.0", {"quantization": "compressed-tensors"}, "quantization-unsupported", None),
        (DENSE, "H100", "0.28.0", {"quantization": "bitsandbytes"}, "quantization-unsupported", None),
        (NIBBLES, "H100", "0.32.0", {}, "quantization-unsupported", None),
        (DENSE, "H100", "0.10.2", {"quantization": "fp8_per_block"}, "quantization-unsupported", None),
        (GGUF, "H100", "0.24.0", {}, "quantization-unsupported", None),
        (AWQ, "V100", "0.10.2", {}, "quantization-unsupported", None),
        (PACKED, "V100", "0.26.0", {}, "quantization-unsupported", None),
    ],
)
def test_refused(
    config: dict[str, Any], gpu: str, version: str, given: dict[str, Any], *, cause: str, option: str | None
) -> None:
    """It does not start, for certain, and the advice is what to change."""
    found = plan(config, gpu, version, **given)

    assert ("does-not-start", cause, "certain") == (found.verdict, found.cause, found.confidence)
    assert option in [advice.option for advice in found.advice]


@pytest.mark.parametrize(
    ("config", "gpu", "version", "given"),
    [
        (MIXTRAL, "H100", "0.32.0", {"enable_expert_parallel": True}),
        (DENSE, "H100", "0.32.0", {"tensor_parallel_size": 8, "decode_context_parallel_size": 2}),
        (DENSE, "H100", "0.20.0", {"tensor_parallel_size": 4, "decode_context_parallel_size": 2}),
        (SPARSE, "H100", "0.32.0", {"tensor_parallel_size": 4, "decode_context_parallel_size": 4}),
        (SPARSE, "H100", "0.26.0", {"kv_cache_dtype": "fp8"}),
        (SPARSE, "H100", "0.32.0", {"kv_cache_dtype": "fp8_e4m3"}),
        (SPARSE, "B200", "0.26.0", {"kv_cache_dtype": "fp8_e4m3"}),
        (AWQ, "T4", "0.10.2", {"dtype": "float16"}),
        (AWQ, "H100", "0.32.0", {"quantization": "awq_marlin"}),
        (PACKED, "H100", "0.32.0", {"quantization": "fp8"}),
        (DENSE, "H100", "0.27.1", {"quantization": "bitsandbytes"}),
        (NIBBLES, "H100", "0.20.0", {}),
        (DENSE, "H100", "0.32.0", {"quantization": "fp8_per_block"}),
        (QWEN3, "H100", "0.8.5", {}),
        (RETIRED, "H100", "0.23.0", {}),
    ],
)
def test_not_refused(config: dict[str, Any], gpu: str, version: str, given: dict[str, Any]) -> None:
    """What is like them and allowed is not refused."""
    found = plan(config, gpu, version, **given)

    assert found.confidence != "certain"
    assert found.verdict != "does-not-start"


def test_an_architecture_that_a_release_leaves_to_transformers() -> None:
    """What a release has no class for may run by the code of transformers, which is not modelled: it cannot be told."""
    found = plan(
        {**DENSE, "architectures": ["Olmo3ForCausalLM"], "layer_types": ["full_attention"] * 4},
        "H100",
        "0.10.2",
    )

    assert "cannot-tell" == found.verdict
    assert "vLLM 0.10.2 has no Olmo3ForCausalLM of its own" in found.message


def test_a_stage_without_a_layer_cannot_be_told() -> None:
    """More pipeline stages than layers leave a stage without any; what that does is not modelled."""
    found = plan(DENSE, "H100", "0.32.0", pipeline_parallel_size=5)

    assert ("cannot-tell", None) == (found.verdict, found.cause)
    assert "4 layers on 5 pipeline stages leave one without any" in found.message


def test_more_ranks_than_any_machine_has_are_a_mistake() -> None:
    """Nothing is counted rank by rank for a number that cannot be."""
    with pytest.raises(UsageError) as caught:
        plan(DENSE, "H100", "0.32.0", pipeline_parallel_size=10**9)

    assert "--pipeline-parallel-size" == caught.value.where


@pytest.mark.parametrize(
    "name",
    ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size"],
)
def test_every_kind_of_rank_takes_a_device(name: str) -> None:
    """Two ranks of any kind do not start on one device; ranks of decode context are tensor parallel ones."""
    found = plan(DENSE, "H100", "0.32.0", gpus=1, **{name: 2})

    assert ("does-not-start", "not-enough-gpus") == (found.verdict, found.cause)


@pytest.mark.parametrize("name", ["decode_context_parallel_size", "prefill_context_parallel_size"])
def test_no_context_ranks_are_a_mistake(name: str) -> None:
    """Context parallel ranks are counted from 1 on."""
    with pytest.raises(UsageError) as caught:
        plan(DENSE, "H100", "0.32.0", **{name: 0})

    assert name in caught.value.what


def test_the_next_number_of_context_ranks_is_looked_for_below_the_ranks() -> None:
    """However many are asked for, the advice is the largest number that divides the ranks."""
    found = plan(DENSE, "H100", "0.32.0", tensor_parallel_size=8, decode_context_parallel_size=10**11)

    assert ["--decode-context-parallel-size 2"] == [advice.option for advice in found.advice]


@pytest.mark.parametrize(("blocks", "verdict"), [(10_000, "starts"), (10_000_000, "does-not-start")])
def test_blocks_that_are_given_are_allocated(blocks: int, verdict: str) -> None:
    """``num_gpu_blocks_override`` counts instead of the memory that was measured: too many of them do not fit."""
    found = plan(DENSE, "H100", "0.32.0", num_gpu_blocks_override=blocks)

    assert (verdict, None if verdict == "starts" else "kv-allocation-oom") == (found.verdict, found.cause)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, -0.5])
def test_no_amount_below_nothing_is_offloaded(value: float) -> None:
    """``cpu_offload_gb`` is a number from 0 on."""
    with pytest.raises(UsageError) as caught:
        plan(DENSE, "H100", "0.32.0", cpu_offload_gb=value)

    assert "cpu_offload_gb" in caught.value.what
