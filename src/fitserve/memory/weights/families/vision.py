"""Vision towers, as vLLM builds them beside the language model.

Source: vLLM 0.32 ``models/qwen3_vl.py``, ``qwen2_vl.py``, ``qwen2_5_vl.py``, ``siglip.py``, ``pixtral.py``,
``mllama4.py``, ``clip.py``.
"""

from collections.abc import Callable
from typing import Any

from fitserve.memory.weights.model import Build

_ROTARY_POSITIONS = 8192


def qwen3_tower(build: Build, *, deepstack: bool = True) -> None:
    """Qwen3-VL's and Qwen3.5's tower."""
    part, inventory = build.part("vision_config"), build.inventory
    hidden, intermediate = build.of(part, "hidden_size"), build.of(part, "intermediate_size")
    merge = build.of(part, "spatial_merge_size") ** 2
    out = build.of(part, "out_hidden_size")

    def add_mlp(name: str) -> None:
        inventory.column(f"{name}.linear_fc1", hidden, intermediate, bias=True)
        inventory.row(f"{name}.linear_fc2", intermediate, hidden, bias=True)

    inventory.numbers(hidden + build.of(part, "num_position_embeddings") * hidden)
    _qwen_blocks(build, part, hidden, norms=4 * hidden, add_mlp=add_mlp)
    deep = part.get("deepstack_visual_indexes")
    mergers = len(deep) if deepstack and isinstance(deep, list) else 0
    for index in range(1 + mergers):
        name = "visual.merger" if index == 0 else f"visual.deepstack_merger_list.{index - 1}"
        inventory.numbers(2 * (hidden if index == 0 else hidden * merge))
        inventory.column(f"{name}.linear_fc1", hidden * merge, hidden * merge, bias=True)
        inventory.row(f"{name}.linear_fc2", hidden * merge, out, bias=True)


def qwen2_tower(build: Build) -> None:
    """Qwen2-VL's tower."""
    part, inventory = build.part("vision_config"), build.inventory
    hidden = build.of(part, "embed_dim")
    intermediate = int(hidden * float(part.get("mlp_ratio") or 4))

    def add_mlp(name: str) -> None:
        inventory.column(f"{name}.fc1", hidden, intermediate, bias=True)
        inventory.row(f"{name}.fc2", intermediate, hidden, bias=True)

    _qwen_blocks(build, part, hidden, norms=4 * hidden, add_mlp=add_mlp)
    _qwen_merger(build, part, hidden, norm=2 * hidden, out=build.of(part, "hidden_size"))


def qwen25_tower(build: Build) -> None:
    """Qwen2.5-VL's tower: RMS norms and a gated network."""
    part, inventory = build.part("vision_config"), build.inventory
    hidden, intermediate = build.of(part, "hidden_size"), build.of(part, "intermediate_size")

    def add_mlp(name: str) -> None:
        inventory.gated_mlp(name, hidden, intermediate, bias=True)

    _qwen_blocks(build, part, hidden, norms=2 * hidden, add_mlp=add_mlp)
    _qwen_merger(build, part, hidden, norm=hidden, out=build.of(part, "out_hidden_size"))


def _qwen_blocks(
    build: Build, part: dict[str, Any], hidden: int, *, norms: int, add_mlp: Callable[[str], None]
) -> None:
    """The patches' embedding without a bias, the rotary table, and the blocks."""
    inventory, heads = build.inventory, build.of(part, "num_heads")
    patches = build.of(part, "patch_size") ** 2 * build.of(part, "temporal_patch_size", default=2)
    inventory.numbers(hidden * patches * build.of(part, "in_channels", "in_chans", default=3))
    columns = hidden // max(1, heads) // 2
    inventory.rotary(("vision", columns), _ROTARY_POSITIONS * columns * inventory.element)

    def add(index: int) -> None:
        name = f"visual.blocks.{index}"
        inventory.numbers(norms)
        inventory.qkv(f"{name}.attn.qkv", hidden, heads, heads, hidden // heads, bias=True, shards=())
        inventory.row(f"{name}.attn.proj", hidden, hidden, bias=True)
        add_mlp(f"{name}.mlp")

    inventory.layers(range(build.of(part, "depth")), add, lambda _index: None)


def _qwen_merger(build: Build, part: dict[str, Any], hidden: int, *, norm: int, out: int) -> None:
    merged = hidden * build.of(part, "spatial_merge_size", default=2) ** 2
    build.inventory.numbers(norm)
    build.inventory.column("visual.merger.mlp.0", merged, merged, bias=True)
    build.inventory.row("visual.merger.mlp.2", merged, out, bias=True)


def clip_tower(
    build: Build,
    part: dict[str, Any],
    name: str,
    *,
    skip_layers: int = 0,
    clip: bool = False,
    post_norm: bool = True,
    position_ids: bool = True,
) -> None:
    """SigLIP's tower, or CLIP's, which has a class token and a norm before its layers."""
    inventory = build.inventory
    hidden, heads = build.of(part, "hidden_size"), build.of(part, "num_attention_heads")
    intermediate, patch = build.of(part, "intermediate_size"), build.of(part, "patch_size")
    positions = (build.of(part, "image_size") // max(1, patch)) ** 2 + clip
    layers = max(0, build.of(part, "num_hidden_layers") - skip_layers)
    inventory.numbers(hidden * (patch**2 * build.of(part, "num_channels", default=3) + (not clip)))
    inventory.numbers(positions * hidden + (3 * hidden if clip else 0))
    inventory.buffers += 8 * positions if position_ids else 0

    def add(index: int) -> None:
        layer = f"{name}.encoder.layers.{index}"
        inventory.numbers(4 * hidden)
        inventory.qkv(f"{layer}.self_attn.qkv_proj", hidden, heads, heads, hidden // heads, bias=True)
        inventory.row(f"{layer}.self_attn.out_proj", hidden, hidden, bias=True)
        inventory.column(f"{layer}.mlp.fc1", hidden, intermediate, bias=True)
        inventory.row(f"{layer}.mlp.fc2", intermediate, hidden, bias=True)

    inventory.layers(range(layers), add, lambda _index: None)
    if post_norm:
        inventory.numbers(2 * hidden)


def pixtral_tower(build: Build, part: dict[str, Any], name: str, *, layers: int | None = None) -> None:
    """Pixtral's tower: a gated network and no biases."""
    inventory = build.inventory
    hidden, heads = build.of(part, "hidden_size"), build.of(part, "num_attention_heads")
    size = build.of(part, "head_dim", default=hidden // max(1, heads))
    intermediate, patch = build.of(part, "intermediate_size"), build.of(part, "patch_size")
    inventory.numbers(hidden * (patch**2 * build.of(part, "num_channels", default=3) + 1))
    inventory.buffers += 2 * (size // 2) * 4

    def add(index: int) -> None:
        layer = f"{name}.transformer.layers.{index}"
        inventory.numbers(2 * hidden)
        inventory.qkv(f"{layer}.attention.qkv_proj", hidden, heads, heads, size)
        inventory.row(f"{layer}.attention.o_proj", heads * size, hidden)
        inventory.gated_mlp(f"{layer}.feed_forward", hidden, intermediate)

    count = build.of(part, "num_hidden_layers") if layers is None else layers
    inventory.layers(range(count), add, lambda _index: None)


def glm4v_tower(build: Build) -> None:
    """GLM-4.1V's tower: Qwen2.5-VL's layers, a convolution that merges patches, a gated merger."""
    part, inventory = build.part("vision_config"), build.inventory
    hidden, heads = build.of(part, "hidden_size"), build.of(part, "num_heads")
    out, merge = build.of(part, "out_hidden_size"), build.of(part, "spatial_merge_size", default=2)
    patch, bias = build.of(part, "patch_size"), part.get("attention_bias") is True
    patches = (
        patch**2 * build.of(part, "temporal_patch_size", default=2) * build.of(part, "in_channels", default=3)
    )
    positions = (build.of(part, "image_size") // max(1, patch)) ** 2
    columns = hidden // max(1, heads) // 2
    inventory.numbers(hidden * (patches + 1 + positions + 2) + out * (hidden * merge**2 + 1))
    inventory.rotary(("vision", columns), _ROTARY_POSITIONS * columns * inventory.element)
    inventory.buffers += 8 * positions

    def add(index: int) -> None:
        name = f"visual.blocks.{index}"
        inventory.numbers(2 * hidden)
        inventory.qkv(f"{name}.attn.qkv", hidden, heads, heads, hidden // heads, bias=bias, shards=())
        inventory.row(f"{name}.attn.proj", hidden, hidden, bias=bias)
        inventory.gated_mlp(f"{name}.mlp", hidden, out)

    inventory.layers(range(build.of(part, "depth")), add, lambda _index: None)
    inventory.column("visual.merger.proj", out, out)
    inventory.numbers(2 * out)
    intermediate = build.of(part, "intermediate_size")
    inventory.column("visual.merger.gate_up_proj", out, (intermediate, intermediate))
    inventory.row("visual.merger.down_proj", intermediate, out)
