"""The memory besides weights and KV cache, against what measured starts printed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.budget import RankBudget, rank_budgets
from fitserve.memory.options import Device
from fitserve.memory.resolve import resolve
from fitserve.memory.weights.ranks import config_weights
from fitserve.units import GIB, Quantity, Unknown

H100 = Device(
    name="NVIDIA H100 80GB HBM3",
    total_bytes=round(79.19 * GIB),
    compute_capability=(9, 0),
    multiprocessors=132,
)

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""The sizes of Llama 3.1 8B."""


def model(**changes: object) -> ModelConfig:
    """The configuration with changes."""
    return parse_config(json.dumps({**LLAMA_8B, **changes}).encode())


def budget(version: str, device: Device = H100, **given_settings: object) -> RankBudget:
    """The first rank's memory of a start of the 8B model."""
    config = model()
    resolved = resolve(config, given_settings, version=version, device=device)
    return rank_budgets(config, resolved, config_weights(config, resolved.options))[0]


def expected(size: object) -> int:
    """The expected bytes of a known size."""
    assert isinstance(size, Quantity)
    return size.expected


MEASURED = [
    # version, settings, activation, non-torch, KV cache, as printed in GiB
    ("0.19.0", {"gpu_memory_utilization": 0.95}, 1.89, 0.25, 58.11),
    ("0.19.0", {"gpu_memory_utilization": 0.95, "tensor_parallel_size": 2}, 1.89, 2.07, 63.76),
    ("0.19.0", {"gpu_memory_utilization": 0.95, "tensor_parallel_size": 4}, 1.89, 2.13, 67.44),
]


@pytest.mark.parametrize(("version", "settings", "activation", "outside", "cache"), MEASURED)
def test_terms_of_measured_starts(
    version: str, settings: dict[str, Any], activation: float, outside: float, cache: float
) -> None:
    """Each term of a start is within 0.03 GiB of what vLLM printed."""
    found = budget(version, **settings)

    assert expected(found.activation_bytes) / GIB == pytest.approx(activation, abs=0.03)
    assert expected(found.non_torch_bytes) / GIB == pytest.approx(outside, abs=0.03)
    assert expected(found.kv_cache_bytes) / GIB == pytest.approx(cache, abs=0.03)


@pytest.mark.parametrize(("version", "reserves"), [("0.17.0", False), ("0.19.1", False), ("0.21.0", True)])
def test_graphs_are_reserved_from_0_20(version: str, reserves: bool) -> None:
    """The graphs' estimate is taken from the KV cache from 0.20 on, and never where nothing is captured."""
    found = budget(version)
    eager = budget(version, enforce_eager=True)

    assert reserves == (expected(found.cuda_graph_bytes) > 0)
    assert expected(eager.cuda_graph_bytes) == 0


def test_the_terms_add_up() -> None:
    """What is requested is the sum of the terms, in each release's accounting."""
    for version in ("0.6.3", "0.9.2", "0.19.0", "0.22.0", "0.33.0"):
        found = budget(version)
        terms = (
            found.weights_bytes,
            found.allocator_bytes,
            found.activation_bytes,
            found.non_torch_bytes,
            found.cuda_graph_bytes,
            found.kv_cache_bytes,
        )

        assert found.requested_bytes == sum(expected(term) for term in terms)


def test_a_pinned_cache_is_what_was_given() -> None:
    """``kv_cache_memory_bytes`` is the KV cache, whatever the rest needs."""
    found = budget("0.30.0", kv_cache_memory_bytes=5 * GIB)

    assert Quantity.exact(5 * GIB, "given", "kv_cache_memory_bytes") == found.kv_cache_bytes


@given(st.integers(64, 60000), st.integers(1, 2048))
def test_larger_batches_never_need_less(tokens: int, seqs: int) -> None:
    """Activations grow with ``max_num_batched_tokens`` and with ``max_num_seqs``."""
    small = budget("0.19.0", max_num_batched_tokens=tokens, max_num_seqs=seqs)
    wide = budget("0.19.0", max_num_batched_tokens=2 * tokens, max_num_seqs=seqs)
    many = budget("0.19.0", max_num_batched_tokens=tokens, max_num_seqs=2 * seqs)

    assert expected(wide.activation_bytes) >= expected(small.activation_bytes)
    assert expected(many.activation_bytes) >= expected(small.activation_bytes)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(["0.8.5", "0.12.0", "0.19.0", "0.25.0", "0.33.0"]))
def test_intervals_hold_what_they_expect(tp: int, version: str) -> None:
    """In every interval low, expected and high are in order."""
    found = budget(version, tensor_parallel_size=tp)
    for size in (found.activation_bytes, found.non_torch_bytes, found.cuda_graph_bytes, found.kv_cache_bytes):
        assert isinstance(size, Quantity)
        assert size.low <= size.expected <= size.high


LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
}
"""The latent attention of DeepSeek V3, on the 8B model's other sizes."""


@pytest.mark.parametrize(
    ("quantization", "expected_bytes"),
    [(None, 0), ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 32 * 16 * 256 * 512 * 2)],
)
def test_latent_attention_in_fp8_keeps_its_projections_twice(
    quantization: dict[str, Any] | None, expected_bytes: int
) -> None:
    """W_UK and W_UV are copies in the model's type where ``kv_b_proj`` is quantised, and views of it where it is not."""
    config = model(**LATENT, **({"quantization_config": quantization} if quantization else {}))
    resolved = resolve(config, {"tensor_parallel_size": 8}, version="0.32.0", device=H100)
    found = rank_budgets(config, resolved, Unknown("not asked"))[0].allocator_bytes

    assert expected(found) == expected_bytes


def test_pieces_take_less_than_whole_steps() -> None:
    """Graphs of pieces alone are fewer, and need no accumulator of the attention kernel."""
    whole = budget("0.32.0")
    pieces = budget("0.32.0", compilation_config={"cudagraph_mode": "PIECEWISE"})

    assert 0 < expected(pieces.captured_bytes) < expected(whole.captured_bytes)
    assert expected(pieces.cuda_graph_bytes) < expected(whole.cuda_graph_bytes)


@pytest.mark.parametrize(
    ("version", "copies"), [("0.11.0", 38 - 14), ("0.16.0", 38 - 14), ("0.17.0", 0), ("0.7.3", 0)]
)
def test_the_interval_reaches_down_to_a_sampler_that_does_not_sort(version: str, copies: int) -> None:
    """From 0.8 to 0.16 the least activation is that of FlashInfer's sampler: 14 bytes a logit, not 38."""
    found = budget(version, max_num_seqs=1024, max_num_batched_tokens=2048).activation_bytes
    assert isinstance(found, Quantity)
    unsorted = copies * 1024 * LLAMA_8B["vocab_size"]

    assert found.low == pytest.approx(found.expected * 0.97 - 64 * (1 << 20) - unsorted, abs=2)


OTHERS = Device(
    name="NVIDIA L40S", total_bytes=round(44.4 * GIB), compute_capability=(8, 9), multiprocessors=142
)


@pytest.mark.parametrize("version", ["0.10.2", "0.19.1", "0.26.0", "0.33.0"])
def test_captured_graphs_are_less_certain_where_they_were_not_measured(version: str) -> None:
    """The interval on another device reaches to four times of what is expected, on Hopper to 1.6 times."""
    other, hopper = budget(version, OTHERS).captured_bytes, budget(version).captured_bytes
    assert isinstance(other, Quantity)
    assert isinstance(hopper, Quantity)

    assert other.high >= 4 * other.expected
    assert hopper.high <= 1.6 * hopper.expected + 129 * (1 << 20)


def test_logits_of_the_sampler_are_in_the_models_type() -> None:
    """In float32 each logit takes two bytes more: of two starts of 0.19 on an H100 that one had 0.25 GiB less beside its weights."""
    narrow, wide = (
        expected(budget("0.19.0", dtype=name).activation_bytes) for name in ("bfloat16", "float32")
    )
    states = 2 * (8192 + 1024) * 4096

    assert 2 * 1024 * 128256 + states == wide - narrow
