"""What a release's backends make of a cache: the size of a block, the type that is kept."""

from typing import Any

import pytest

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.kv import LayerSpec, layer_specs, unsure_blocks
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB

GEMMA4 = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 2816,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "num_hidden_layers": 12,
        "sliding_window": 1024,
        "use_bidirectional_attention": "vision",
        "max_position_embeddings": 131072,
    },
}
GEMMA3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_hidden_layers": 12,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
    },
}
MIMO = {
    "architectures": ["MiMoV2FlashForCausalLM"],
    "model_type": "mimo_v2_flash",
    "hidden_size": 4096,
    "num_hidden_layers": 2,
    "hybrid_layer_pattern": [0, 1],
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "sliding_window": 128,
}
HOPPER, BLACKWELL, ADA = (9, 0), (10, 0), (8, 9)


def specs(config: dict[str, Any], capability: tuple[int, int], **settings: Any) -> tuple[LayerSpec, ...]:
    """The layers of a model on a device."""
    found = layer_specs(parsed(config), options(capability, **settings))
    assert isinstance(found, tuple)
    return found


def parsed(config: dict[str, Any]) -> ModelConfig:
    """The configuration, its language model apart."""
    return ModelConfig(data=config, text=config.get("text_config", config))


def options(capability: tuple[int, int], **settings: Any) -> EngineOptions:
    """Settings on a device of that capability."""
    device = Device(name="a device", total_bytes=80 * GIB, compute_capability=capability)
    return EngineOptions(device=device, max_model_len=8192, **settings)


@pytest.mark.parametrize(
    ("config", "capability", "settings", "block_size"),
    [
        # FlashAttention 4 reads an fp8 cache of heads of 512 on Hopper in blocks of 64.
        (GEMMA4, HOPPER, {"vllm_version": "0.33.0", "kv_cache_dtype": "fp8"}, 64),
        (GEMMA4, HOPPER, {"vllm_version": "0.33.0", "kv_cache_dtype": "fp8", "block_size": 16}, 16),
        (GEMMA4, HOPPER, {"vllm_version": "0.33.0"}, 16),
        (GEMMA4, HOPPER, {"vllm_version": "0.30.0", "kv_cache_dtype": "fp8"}, 16),
        (GEMMA4, ADA, {"vllm_version": "0.33.0", "kv_cache_dtype": "fp8"}, 16),
        # FlashInfer beside Triton on Blackwell, where the tokens of an image see each other.
        (GEMMA4, BLACKWELL, {"vllm_version": "0.33.0"}, 64),
        (GEMMA4, BLACKWELL, {"vllm_version": "0.33.0", "language_model_only": True}, 16),
        (GEMMA4, BLACKWELL, {"vllm_version": "0.29.0"}, 16),
        (GEMMA3_27B, BLACKWELL, {"vllm_version": "0.33.0"}, 16),
    ],
)
def test_block_size(
    config: dict[str, Any], capability: tuple[int, int], settings: dict[str, Any], block_size: int
) -> None:
    """The smallest block is the one that the chosen backend takes."""
    assert block_size == min(spec.block_size for spec in specs(config, capability, **settings))


@pytest.mark.parametrize(
    ("version", "capability", "kernel"),
    [
        ("0.32.0", HOPPER, "FlashAttention 4"),
        ("0.32.0", BLACKWELL, "FlashInfer"),
        ("0.30.0", HOPPER, ""),
        ("0.29.0", BLACKWELL, ""),
        ("0.32.0", ADA, ""),
    ],
)
def test_blocks_that_a_kernel_may_enlarge_are_named(
    version: str, capability: tuple[int, int], kernel: str
) -> None:
    """Releases whose builds differ are not passed over in silence."""
    given = options(capability, vllm_version=version, kv_cache_dtype="fp8")

    assert kernel == unsure_blocks(parsed(GEMMA4), given, 16)


@pytest.mark.parametrize(("version", "bytes_an_element"), [("0.29.0", 2), ("0.31.0", 2), ("0.32.0", 1)])
def test_a_type_that_is_not_passed_on_is_not_kept(version: str, bytes_an_element: int) -> None:
    """MiMo V2 keeps an fp8 cache in 16 bit before 0.32: measured with each release's own code."""
    found = specs(MIMO, HOPPER, vllm_version=version, kv_cache_dtype="fp8")
    whole = next(spec for spec in found if spec.kind == "full")

    assert 16 * 4 * (192 + 128) * bytes_an_element == whole.page_bytes
