"""Models that see or hear: a tower, a projector and a language model.

Source: vLLM 0.32 ``models/qwen3_vl.py``, ``qwen3_5.py``, ``qwen2_vl.py``, ``gemma3_mm.py``, ``mistral3.py``, ``llava_next.py``,
``mllama4.py``, ``kimi_k25.py``.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from fitserve.memory.weights.compressed import CompressedQuantiser
from fitserve.memory.weights.families.dense import Dense, dense
from fitserve.memory.weights.families.gemma import gemma
from fitserve.memory.weights.families.hybrid import qwen_hybrid
from fitserve.memory.weights.families.mla import deepseek
from fitserve.memory.weights.families.moe import llama4, qwen_moe
from fitserve.memory.weights.families.vision import (
    clip_tower,
    glm4v_tower,
    pixtral_tower,
    qwen2_tower,
    qwen3_tower,
    qwen25_tower,
)
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.quantiser import Quantiser
from fitserve.memory.weights.shapes import NotModelledError

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
    """The tower, unless only the language model is asked for; whole on each rank where the ranks share out the items instead."""
    if build.options.language_model_only:
        return
    inventory = build.inventory
    before = inventory.tp, inventory.stacked, inventory.stack_layers
    if build.options.encoder.tp_mode == "data":
        inventory.tp = 1
    tower(build)
    inventory.tp, inventory.stacked, inventory.stack_layers = before


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


def llava(build: Build, *, newline: bool) -> None:
    """LLaVA and LLaVA-NeXT around a Llama, Mistral or Granite.

    Raises:
        NotModelledError: another tower or language model.
    """
    text_kind = str(build.text.get("model_type"))
    if text_kind not in {"llama", "mistral", "granite"}:
        raise NotModelledError(f"LLaVA around {text_kind!r}")
    with_tower(build, lambda inner: _llava_tower(inner, newline=newline))
    default = text_kind == "granite"
    dense(build, Dense(prefix="language_model.model", head="language_model.lm_head", tied=default))


def _llava_tower(build: Build, *, newline: bool) -> None:
    part, inventory, data = build.part("vision_config"), build.inventory, build.config.data
    kind = part.get("model_type")
    if kind not in {"clip_vision_model", "siglip_vision_model"}:
        raise NotModelledError(f"a vision tower of kind {kind!r}")
    chosen = data.get("vision_feature_layer", -2)
    several = chosen if isinstance(chosen, list) else [chosen]
    if not all(isinstance(layer, int) for layer in several) or not several:
        raise NotModelledError("LLaVA without vision_feature_layer")
    layers = build.of(part, "num_hidden_layers")
    deepest = min(layers, max(layer if layer >= 0 else layers + layer + 1 for layer in several))
    clip = kind == "clip_vision_model"
    tower = "vision_tower.vision_model"
    clip_tower(build, part, tower, skip_layers=layers - deepest, clip=clip, post_norm=False)
    seen, hidden = build.of(part, "hidden_size") * len(several), build.hidden
    bias = data.get("multimodal_projector_bias", True) is True
    inventory.column("multi_modal_projector.linear_1", seen, hidden, bias=bias)
    inventory.row("multi_modal_projector.linear_2", hidden, hidden, bias=bias)
    if newline:
        inventory.numbers(hidden)


def kimi_k25(build: Build) -> None:
    """Kimi K2.5: MoonViT, which compressed-tensors leaves as it is, before DeepSeek V3."""
    quantiser = build.inventory.quantiser
    if isinstance(quantiser, CompressedQuantiser):
        build.inventory.quantiser = Quantiser()
    with_tower(build, _moonvit)
    build.inventory.quantiser = quantiser
    deepseek(build, "language_model.model", "language_model.lm_head")


def _moonvit(build: Build) -> None:
    part, inventory = build.part("vision_config"), build.inventory
    times = inventory.element if type(inventory.quantiser) is Quantiser else 4
    inventory.buffers += build.of(part, "init_pos_emb_time") * build.of(part, "vt_hidden_size") * times
    _moonvit_of(build, part, "mm_projector")


def _moonvit_of(build: Build, part: dict[str, Any], projector: str) -> None:
    inventory = build.inventory
    hidden, heads = build.of(part, "vt_hidden_size"), build.of(part, "vt_num_attention_heads")
    intermediate, patch = build.of(part, "vt_intermediate_size"), build.of(part, "patch_size")
    grid = build.of(part, "init_pos_emb_height") * build.of(part, "init_pos_emb_width")
    inventory.numbers(hidden * (3 * patch**2 + 1 + grid))

    def add(index: int) -> None:
        name = f"vision_tower.encoder.blocks.{index}"
        inventory.numbers(4 * hidden)
        inventory.qkv(f"{name}.wqkv", hidden, heads, heads, hidden // heads, bias=True, shards=())
        inventory.row(f"{name}.wo", hidden, hidden, bias=True)
        inventory.column(f"{name}.mlp.fc0", hidden, intermediate, bias=True)
        inventory.row(f"{name}.mlp.fc1", intermediate, hidden, bias=True)

    inventory.layers(range(build.of(part, "vt_num_hidden_layers")), add, lambda _index: None)
    kernel = part.get("merge_kernel_size")
    if not (isinstance(kernel, list) and len(kernel) == 2 and all(isinstance(side, int) for side in kernel)):
        raise NotModelledError("MoonViT without merge_kernel_size")
    merged = hidden * kernel[0] * kernel[1]
    inventory.numbers(4 * hidden)
    inventory.column(f"{projector}.linear_1", merged, merged, bias=True, whole=True)
    inventory.column(f"{projector}.linear_2", merged, build.hidden, bias=True, whole=True)


def llama4_vision(build: Build) -> None:
    """Llama 4 with its tower."""
    with_tower(build, _llama4_tower)
    llama4(build, "language_model.model", "language_model.lm_head")


_LLAMA4_VISION = {
    "hidden_size": 768,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "intermediate_size": 5632,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
"""What holds where a configuration leaves it out. Source: transformers 5.19 ``Llama4VisionConfig``."""


def _llama4_tower(build: Build) -> None:
    found, inventory = build.config.data.get("vision_config"), build.inventory
    part = _LLAMA4_VISION | (found if isinstance(found, dict) else {})
    hidden, heads = build.of(part, "hidden_size"), build.of(part, "num_attention_heads")
    intermediate, patch = build.of(part, "intermediate_size"), build.of(part, "patch_size")
    positions = (build.of(part, "image_size") // max(1, patch)) ** 2 + 1
    inventory.numbers(hidden * (1 + positions + 4))
    inventory.column("vision_model.patch_embedding.linear", 3 * patch**2, hidden)
    inventory.rotary("vision", positions * (hidden // heads // 2) * 8)

    def add(index: int) -> None:
        name = f"vision_model.model.layers.{index}"
        inventory.numbers(4 * hidden)
        inventory.qkv(f"{name}.self_attn.qkv_proj", hidden, heads, heads, hidden // heads, bias=True)
        inventory.row(f"{name}.self_attn.o_proj", hidden, hidden, bias=True)
        inventory.column(f"{name}.mlp.fc1", hidden, intermediate, bias=True)
        inventory.row(f"{name}.mlp.fc2", intermediate, hidden, bias=True)

    inventory.layers(range(build.of(part, "num_hidden_layers")), add, lambda _index: None)
    width, out = build.of(part, "projector_input_dim"), build.of(part, "projector_output_dim")
    inventory.column("vision_model.vision_adapter.mlp.fc1", intermediate, width)
    inventory.row("vision_model.vision_adapter.mlp.fc2", width, out)
    inventory.column("multi_modal_projector.linear_1", build.of(part, "vision_output_dim"), build.hidden)


def kimi_vl(build: Build) -> None:
    """Kimi-VL: MoonViT before DeepSeek V3.

    Source: vLLM 0.32 ``models/kimi_vl.py``, ``moonvit.py``.
    """
    with_tower(build, _moonvit_still)
    deepseek(build, "language_model.model", "language_model.lm_head")


def _moonvit_still(build: Build) -> None:
    part = build.part("vision_config")
    renamed = {f"vt_{name}": value for name, value in part.items()} | part
    _moonvit_of(build, renamed, "multi_modal_projector")


def idefics3(build: Build) -> None:
    """Idefics 3 and SmolVLM: SigLIP's tower, a projection of merged patches, a Llama.

    Source: vLLM 0.32 ``models/idefics3.py``.
    """
    with_tower(build, _idefics3_tower)
    dense(build, Dense(prefix="model.text_model"))


def _idefics3_tower(build: Build) -> None:
    part = build.part("vision_config")
    clip_tower(build, part, "model.vision_model", position_ids=False)
    merged = build.of(part, "hidden_size") * build.of(build.config.data, "scale_factor", default=2) ** 2
    build.inventory.column("model.connector.modality_projection.proj", merged, build.hidden, whole=True)


def glm4v(build: Build) -> None:
    """GLM-4.1V: its tower before GLM 4.

    Source: vLLM 0.32 ``models/glm4_1v.py``.
    """
    with_tower(build, glm4v_tower)
    how = Dense(out_bias=False, mlp_bias=False, norms=4)
    dense(build, msgspec.structs.replace(how, prefix="language_model.model", head="language_model.lm_head"))


def paligemma(build: Build) -> None:
    """PaliGemma: SigLIP's tower, one projection, Gemma or Gemma 2.

    Source: vLLM 0.32 ``models/paligemma.py``.
    """
    with_tower(build, _paligemma_tower)
    second = build.text.get("model_type") == "gemma2"
    gemma(build, norms=4 if second else 2, qk_norm=False, prefix="language_model.model")


def _paligemma_tower(build: Build) -> None:
    part = build.part("vision_config")
    clip_tower(build, part, "vision_tower.vision_model")
    width = build.of(part, "projection_dim", default=build.hidden)
    build.inventory.numbers(width * (build.of(part, "hidden_size") + 1))
