"""Models that see or hear: a tower, a projector and a language model.

Source: vLLM 0.32 ``models/qwen3_vl.py``, ``qwen3_5.py``, ``qwen2_vl.py``, ``gemma3_mm.py``, ``mistral3.py``, ``llava_next.py``,
``mllama4.py``, ``kimi_k25.py``.
"""

from collections.abc import Callable

from fitserve.memory.weights.families.dense import Dense, dense
from fitserve.memory.weights.families.hybrid import qwen_hybrid
from fitserve.memory.weights.families.moe import qwen_moe
from fitserve.memory.weights.families.vision import (
    pixtral_tower,
    qwen2_tower,
    qwen3_tower,
    qwen25_tower,
)
from fitserve.memory.weights.model import Build

_QWEN3 = Dense(
    out_bias=False,
    mlp_bias=False,
    qk_norm="head",
    prefix="language_model.model",
    head="language_model.lm_head",
)
_QWEN2 = Dense(
    qkv_bias=True,
    out_bias=False,
    mlp_bias=False,
    prefix="language_model.model",
    head="language_model.lm_head",
)


def with_tower(build: Build, tower: Callable[[Build], None]) -> None:
    """The tower, unless only the language model is asked for."""
    if not build.options.language_model_only:
        tower(build)


def qwen3_vl(build: Build) -> None:
    """Qwen3-VL."""
    with_tower(build, qwen3_tower)
    factor = 1 if build.at_least("0.32.0") else 4
    dense(build, _QWEN3, mrope_factor=factor)


def qwen3_vl_moe(build: Build) -> None:
    """Qwen3-VL with experts."""
    with_tower(build, qwen3_tower)
    factor = 1 if build.at_least("0.32.0") else 4
    qwen_moe(build, _QWEN3, mrope_factor=factor)


def qwen2_vl(build: Build) -> None:
    """Qwen2-VL."""
    with_tower(build, qwen2_tower)
    dense(build, _QWEN2)


def qwen25_vl(build: Build) -> None:
    """Qwen2.5-VL."""
    with_tower(build, qwen25_tower)
    dense(build, _QWEN2)


def qwen35(build: Build) -> None:
    """Qwen3.5, dense or with experts."""
    with_tower(build, lambda inner: qwen3_tower(inner, deepstack=False))
    qwen_hybrid(build, "language_model.model", "language_model.lm_head")


def mistral3(build: Build) -> None:
    """Mistral Small 3.1 and later: Pixtral's tower and a merger of patches."""
    with_tower(build, _mistral3_tower)
    dense(
        build,
        Dense(qkv_bias=False, out_bias=False, prefix="language_model.model", head="language_model.lm_head"),
    )


def _mistral3_tower(build: Build) -> None:
    part, inventory = build.part("vision_config"), build.inventory
    pixtral_tower(build, part, "vision_tower")
    seen, hidden = build.of(part, "hidden_size"), build.hidden
    merge = build.of(build.config.data, "spatial_merge_size", default=2) ** 2
    bias = build.config.data.get("multimodal_projector_bias") is True
    inventory.numbers(seen)
    inventory.column("multi_modal_projector.patch_merger.merging_layer", seen * merge, seen, whole=True)
    inventory.column("multi_modal_projector.linear_1", seen, hidden, bias=bias)
    inventory.row("multi_modal_projector.linear_2", hidden, hidden, bias=bias)
