"""Encoders of images: what is built of them, how they are divided, and what their pass takes while vLLM profiles.

Rows of ``weights/measured_encoders.jsonl`` were measured like those of ``weights/measured_small.jsonl``, whose configurations they are.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.model_config import ModelConfig, parse_config
from fitserve.memory.budget import rank_budgets
from fitserve.memory.encoders import modalities, takes_text_alone
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.encoder import encoder_of
from fitserve.memory.resolve import Resolved, resolve
from fitserve.memory.weights.ranks import config_weights
from fitserve.units import GIB, Quantity, Unknown

FOLDER = Path(__file__).parent / "weights"
ROWS = [json.loads(line) for line in (FOLDER / "measured_encoders.jsonl").read_text().splitlines()]
CONFIGS: dict[str, dict[str, Any]] = {}
for _line in (FOLDER / "measured_small.jsonl").read_text().splitlines():
    _row = json.loads(_line)
    CONFIGS.setdefault(_row["model"], _row["config"])

QWEN25_VL_7B = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 128000,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
    },
}


def parsed(config: dict[str, Any]) -> ModelConfig:
    """A configuration as it is read."""
    return parse_config(json.dumps(config).encode())


def settled(config: ModelConfig, given: dict[str, Any], version: str = "0.32.0") -> Resolved:
    """Settings with all defaults, on an H100."""
    return resolve(config, given, version=version, device=EngineOptions().device)


def label(row: dict[str, Any]) -> str:
    """A row's name."""
    return f"{row['model']}{row['settings']}"


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_an_encoder_is_built_and_divided_as_in_vllm(row: dict[str, Any]) -> None:
    """It is left out where no item may come, and stands whole on every rank where the ranks share out items."""
    config = parsed(CONFIGS[row["model"]])

    found = config_weights(config, settled(config, row["settings"]).options)

    assert isinstance(found, tuple), found
    measured = found[0].param_bytes.expected, found[0].buffer_bytes.expected
    assert measured == (row["param_bytes"], row["buffer_bytes"])


@pytest.mark.parametrize(
    ("version", "given", "left_out", "skipped"),
    [
        ("0.32.0", {"limit_mm_per_prompt": {"image": 0, "video": 0}}, True, True),
        ("0.32.0", {"limit_mm_per_prompt": {"image": {"count": 0}, "video": 0}}, True, True),
        ("0.32.0", {"limit_mm_per_prompt": {"image": 0}}, False, False),
        ("0.32.0", {"limit_mm_per_prompt": {"image": 2, "video": 0}}, False, False),
        ("0.32.0", {"skip_mm_profiling": True}, False, True),
        ("0.32.0", {"language_model_only": True}, True, True),
        ("0.32.0", {}, False, False),
        ("0.12.0", {"limit_mm_per_prompt": {"image": 0, "video": 0}}, False, True),
    ],
)
def test_text_alone(version: str, given: dict[str, Any], left_out: bool, skipped: bool) -> None:
    """What is not limited may come; up to 0.15 most encoders are built though no item may come."""
    resolved = settled(parsed(QWEN25_VL_7B), given, version)

    assert resolved.options.language_model_only is left_out
    assert resolved.skips_multimodal is skipped


def test_what_a_model_takes() -> None:
    """Videos where their token is named, sound where its encoder is."""
    assert modalities(parsed(QWEN25_VL_7B)) == ("image", "video")
    assert modalities(parsed({**QWEN25_VL_7B, "video_token_id": None})) == ("image",)
    sound = {"architectures": ["Any"], "audio_config": {}, "text_config": {"hidden_size": 1}}
    assert modalities(parsed(sound)) == ("audio",)
    assert takes_text_alone(parsed(sound), {"limit_mm_per_prompt": {"audio": 0}})
    assert takes_text_alone(parsed(sound), {"limit_mm_per_prompt": "audio=0,image=0"})


@pytest.mark.parametrize(
    ("vision", "whole", "ratio"),
    [
        ({"hidden_size": 1152, "patch_size": 14, "image_size": 896}, {"mm_tokens_per_image": 256}, 16),
        ({"hidden_size": 1024, "patch_size": 14, "image_size": 448}, {"downsample_ratio": 0.5}, 4),
        ({"hidden_size": 1408, "patch_size": 14, "pixel_shuffle_ratio": 0.5}, {}, 4),
        ({"hidden_size": 1152, "patch_size": 14, "merge_kernel_size": [2, 2]}, {}, 4),
        ({"hidden_size": 1024, "patch_size": 14}, {"spatial_merge_size": 2}, 4),
        ({"hidden_size": 1152, "patch_size": 14}, {"scale_factor": 3}, 9),
        ({"hidden_size": 1024, "patch_size": 14, "image_size": 336}, {}, 1),
    ],
)
def test_patches_of_a_token(vision: dict[str, Any], whole: dict[str, Any], ratio: int) -> None:
    """Gemma 3, InternVL, Llama 4, Kimi-VL, Mistral 3, SmolVLM and LLaVA each say it in their own way."""
    config = parsed({"architectures": ["Any"], "hidden_size": 64, "vision_config": vision, **whole})
    found = encoder_of(config, EngineOptions())

    assert found is not None
    assert found.patches_per_token == ratio


def activations(config: ModelConfig, given: dict[str, Any]) -> Quantity:
    """The activations of the first rank."""
    resolved = settled(config, given)
    found = rank_budgets(config, resolved, config_weights(config, resolved.options))[0].activation_bytes
    assert isinstance(found, Quantity)
    return found


def test_the_largest_image_of_qwen() -> None:
    """16,384 tokens, though a step has 2,048: 65,536 patches of 1,280 numbers, an MLP of 3,420, and 1,176 pixels. By hand."""
    given = {"max_num_batched_tokens": 2048, "max_num_seqs": 16}
    found = activations(parsed(QWEN25_VL_7B), given)

    run = 65_536 * (2 * (2 * 1280 + 3 * 3420) + 3 * 2 * 196 * 4)
    outputs = 16_384 * 3584 * 2
    assert found.expected == run + outputs
    assert found.high >= 2 * (run + outputs)
    assert "16384 tokens of images" in found.source


def test_an_mlp_without_a_gate() -> None:
    """Qwen3's encoder: two copies of its MLP's width; 4,096 tokens more are 0.47 GiB, of which starts have shown 0.43. By hand."""
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2}
    vision |= {"temporal_patch_size": 2, "hidden_act": "gelu_pytorch_tanh", "depth": 27, "num_heads": 16}
    config = parsed(
        {
            **QWEN25_VL_7B,
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "hidden_size": 5120,
            "vision_config": vision,
        }
    )
    sizes = []
    for tokens in (4096, 8192):
        pixels = {"max_pixels": tokens * 32 * 32}
        given = {"max_num_batched_tokens": 2048, "max_num_seqs": 1, "mm_processor_kwargs": pixels}
        resolved = settled(config, given)
        ranks = rank_budgets(config, resolved, Unknown("not asked"))
        assert isinstance(ranks[0].activation_bytes, Quantity)
        sizes.append(ranks[0].activation_bytes.expected)

    run = 4 * (2 * (2 * 1152 + 2 * 4304) + 3 * 2 * 256 * 4) + 5120 * 2
    assert sizes[1] == 8192 * run
    assert sizes[1] - sizes[0] <= 4096 * run


def test_smaller_images_take_less() -> None:
    """``max_pixels`` of the processor decides; items shared out over ranks do too."""
    config = parsed(QWEN25_VL_7B)
    whole = {"max_num_batched_tokens": 2048, "max_num_seqs": 16}
    small = {**whole, "mm_processor_kwargs": {"max_pixels": 1_003_520}}

    assert activations(config, small).expected < activations(config, whole).expected // 2
    assert activations(config, {**whole, "skip_mm_profiling": True}).expected < GIB


def test_two_ranks_divide_the_encoder_or_its_items() -> None:
    """One large image cannot be shared out: with ``data`` a rank runs the whole of it."""
    config = parsed(QWEN25_VL_7B)
    given = {"max_num_batched_tokens": 2048, "max_num_seqs": 16, "tensor_parallel_size": 2}

    divided, dealt = activations(config, given), activations(config, {**given, "mm_encoder_tp_mode": "data"})

    assert divided.expected < dealt.expected


def test_an_encoder_without_sizes_widens_the_interval() -> None:
    """Where nothing can be read of it, the most is far above, and the reason is named."""
    config = parsed({**QWEN25_VL_7B, "vision_config": {"kind": "other"}})
    resolved = settled(config, {})
    found = rank_budgets(config, resolved, config_weights(parsed(QWEN25_VL_7B), resolved.options))[0]

    assert isinstance(found.activation_bytes, Quantity)
    assert found.activation_bytes.high > found.activation_bytes.expected + 4 * GIB
    assert "encoder" in found.activation_bytes.source
