"""InternVL: InternViT, a merger of patches, and one of several language models.

Source: vLLM 0.32 ``models/internvl.py``, ``intern_vit.py``.
"""

import msgspec

from fitserve.memory.weights.families.dense import Dense, dense
from fitserve.memory.weights.families.moe import qwen_moe
from fitserve.memory.weights.families.multimodal import with_tower
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.shapes import NotModelledError

_HOW = Dense(prefix="language_model.model", head="language_model.lm_head", mlp_bias=False)
_LANGUAGE = {
    "qwen2": msgspec.structs.replace(_HOW, qkv_bias=True, out_bias=False),
    "qwen3": msgspec.structs.replace(_HOW, out_bias=False, qk_norm="head"),
    "qwen3_moe": msgspec.structs.replace(_HOW, out_bias=False, qk_norm="head"),
    "llama": msgspec.structs.replace(_HOW, mlp_bias=None),
    "internlm2": _HOW,
}


def internvl(build: Build) -> None:
    """Count the model.

    Raises:
        NotModelledError: another language model or tower.
    """
    kind = str(build.text.get("model_type"))
    how = _LANGUAGE.get(kind)
    if how is None:
        raise NotModelledError(f"InternVL around {kind!r}")
    with_tower(build, _tower)
    if kind == "qwen3_moe":
        qwen_moe(build, how)
    else:
        dense(build, how)


def _tower(build: Build) -> None:
    part, inventory, data = build.part("vision_config"), build.inventory, build.config.data
    if part.get("model_type") not in {None, "intern_vit_6b", "intern_vit_300m"}:
        raise NotModelledError(f"InternVL with a tower of kind {part.get('model_type')!r}")
    hidden, heads = build.of(part, "hidden_size"), build.of(part, "num_attention_heads")
    intermediate, patch = build.of(part, "intermediate_size"), build.of(part, "patch_size")
    positions = (build.of(part, "image_size") // max(1, patch)) ** 2 + 1
    chosen, layers = data.get("select_layer", -1), build.of(part, "num_hidden_layers")
    if not isinstance(chosen, int):
        raise NotModelledError("InternVL without select_layer")
    count = min(layers, layers + chosen + 1 if chosen < 0 else chosen + 1)
    norm = hidden if part.get("norm_type") == "rms_norm" else 2 * hidden
    heads_normed = 2 * hidden if part.get("qk_normalization") is True else 0
    inventory.numbers(hidden * (1 + positions + 3 * patch**2 + 1))

    def add(index: int) -> None:
        name = f"vision_model.encoder.layers.{index}"
        bias = part.get("qkv_bias") is True
        inventory.qkv(f"{name}.attn.qkv", hidden, heads, heads, hidden // heads, bias=bias, shards=())
        inventory.row(f"{name}.attn.proj", hidden, hidden, bias=True)
        inventory.column(f"{name}.mlp.fc1", hidden, intermediate, bias=True)
        inventory.row(f"{name}.mlp.fc2", intermediate, hidden, bias=True)
        inventory.numbers(2 * norm + 2 * hidden + heads_normed)

    inventory.layers(range(max(0, count)), add, lambda _index: None)
    ratio = data.get("downsample_ratio", 0.5)
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise NotModelledError("InternVL without downsample_ratio")
    merged, out = hidden * round(1 / ratio) ** 2, build.hidden
    inventory.numbers(2 * merged + out * (merged + 1) + out * (out + 1))
