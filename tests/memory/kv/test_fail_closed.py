"""What is not modelled is named, never guessed."""

import json
from typing import Any

import pytest

from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB, Unknown

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}
QWEN_NEXT: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3NextForCausalLM"],
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
GAUDI = Device(name="Intel Gaudi 3", total_bytes=192 * GIB)


def config_of(data: dict[str, Any]) -> ModelConfig:
    """A configuration of these numbers."""
    return parse_config(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        ({**LLAMA, "architectures": ["NextYearForCausalLM"]}, {}, "NextYearForCausalLM"),
        (LLAMA, {"kv_cache_dtype": "turboquant_k8v4"}, "turboquant_k8v4"),
        (LLAMA, {"tensor_parallel_size": 3}, "tensor_parallel_size 3"),
        (LLAMA, {"num_speculative_tokens": 3}, "method"),
        (LLAMA, {"num_speculative_tokens": 3, "speculative_method": "eagle3"}, "eagle3"),
        (LLAMA, {"num_speculative_tokens": 3, "speculative_method": "mtp"}, "LlamaForCausalLM"),
        (LLAMA, {"device": GAUDI}, "Gaudi 3"),
        ({**LLAMA, "num_hidden_layers": None}, {}, "num_hidden_layers"),
        ({**LLAMA, "layer_types": ["full_attention", "new_attention"] * 16}, {}, "new_attention"),
        (
            {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True},
            {},
            "use_sliding_window",
        ),
        (QWEN_NEXT, {"vllm_version": "0.10.2"}, "0.11"),
        ({**QWEN_NEXT, "layer_types": ["convolution"] * 32}, {}, "convolution"),
    ],
)
def test_a_missing_piece_is_named(data: dict[str, Any], options: dict[str, Any], named: str) -> None:
    """The unknown names what is missing."""
    specs = layer_specs(config_of(data), EngineOptions(**{"max_model_len": 4096, **options}))

    assert isinstance(specs, Unknown)
    assert named in specs.unknown


def test_windows_are_not_shared_by_context_parallel_ranks() -> None:
    """VLLM refuses windows with decode context parallelism, and so no number is given."""
    data = {**LLAMA, "architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096}
    options = EngineOptions(max_model_len=4096, tensor_parallel_size=2, decode_context_parallel_size=2)
    specs = layer_specs(config_of(data), options)

    assert isinstance(specs, tuple)
    assert isinstance(capacity(specs, options, GIB), Unknown)


def test_the_length_must_be_known() -> None:
    """Without a context length there is no concurrency."""
    specs = layer_specs(config_of(LLAMA), EngineOptions())

    assert isinstance(specs, tuple)
    assert isinstance(capacity(specs, EngineOptions(), GIB), Unknown)


@pytest.mark.parametrize(
    ("options", "size", "cause"),
    [
        ({}, 0, "no-kv-cache-blocks"),
        ({}, GIB, "kv-cache-smaller-than-context"),
        ({"kv_cache_memory_bytes": GIB}, GIB, "kv-cache-pinned-too-small"),
        ({"num_gpu_blocks_override": 8}, 100 * GIB, "kv-cache-pinned-too-small"),
    ],
)
def test_a_refusal_names_its_cause(options: dict[str, Any], size: int, cause: str) -> None:
    """Nothing left, too little left, and too little set by hand are told apart."""
    asked = EngineOptions(max_model_len=32768, **options)
    specs = layer_specs(config_of(LLAMA), asked)

    assert isinstance(specs, tuple)
    found = capacity(specs, asked, size)
    assert isinstance(found, Refusal)
    assert cause == found.cause


def test_drafting_layers_add_to_the_cache() -> None:
    """A model that drafts beside the served one keeps its own layers' tokens."""
    draft = config_of({**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1})
    options = EngineOptions(max_model_len=4096, num_speculative_tokens=3, speculative_method="eagle3")
    specs = layer_specs(config_of(LLAMA), options, draft)

    assert isinstance(specs, tuple)
    assert [33] == [len(spec.layers) for spec in specs]


def test_text_drafts_add_nothing() -> None:
    """Drafts from the text itself have no layers."""
    options = EngineOptions(max_model_len=4096, num_speculative_tokens=3, speculative_method="ngram")
    specs = layer_specs(config_of(LLAMA), options)

    assert isinstance(specs, tuple)
    assert [32] == [len(spec.layers) for spec in specs]


@pytest.mark.parametrize(
    ("release", "tokens"),
    [("0.8.5", 131072), ("0.10.2", 131072), ("0.19.0", 131072), ("0.20.1", 131072), ("0.33.0", 131072)],
)
def test_alike_layers_count_every_token(release: str, tokens: int) -> None:
    """With layers that are all alike, every release prints blocks times the block size."""
    options = EngineOptions(vllm_version=release, max_model_len=8192)
    specs = layer_specs(config_of(LLAMA), options)

    assert isinstance(specs, tuple)
    found = capacity(specs, options, 16 * GIB)
    assert isinstance(found, KvCache)
    assert tokens == found.tokens


def test_the_null_block_is_set_aside() -> None:
    """From 0.29 on a request that fills the cache exactly is refused, before it is not."""
    exact = 32768 * 32 * 2 * 8 * 128 * 2
    for release, kind in (("0.28.0", KvCache), ("0.29.0", Refusal)):
        options = EngineOptions(vllm_version=release, max_model_len=32768)
        specs = layer_specs(config_of(LLAMA), options)
        assert isinstance(specs, tuple)

        assert isinstance(capacity(specs, options, exact), kind)


def test_a_build_without_tags_counts_as_the_newest() -> None:
    """``0.1.dev1+g…`` is what a checkout without tags calls itself, not a release of long ago."""
    made = [
        layer_specs(config_of(QWEN_NEXT), EngineOptions(vllm_version=version, max_model_len=4096))
        for version in ("0.1.dev1+g4d2a68d64", "0.33.0")
    ]

    assert isinstance(made[0], tuple)
    assert made[0] == made[1]
