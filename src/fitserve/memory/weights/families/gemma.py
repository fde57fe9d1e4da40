"""Gemma 2 to 4: four norms a layer, full and windowed attention that turn differently.

Source: vLLM 0.32 ``models/gemma2.py``, ``gemma3.py``, ``gemma4.py``, ``gemma3_mm.py``, ``gemma4_mm.py``.
"""

from typing import Any

from fitserve.memory.weights.families.dense import tied
from fitserve.memory.weights.families.vision import clip_tower
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary, rope_parameters
from fitserve.memory.weights.shapes import NotModelledError


def windowed_layers(build: Build, period: int | None) -> list[bool]:
    """Which layers see a window only: as ``layer_types`` says, or all but every ``sliding_window_pattern``-th."""
    count = build.integer("num_hidden_layers")
    types = build.text.get("layer_types")
    if isinstance(types, list) and len(types) >= count:
        return [kind == "sliding_attention" for kind in types]
    every = build.integer("sliding_window_pattern", "_sliding_window_pattern", default=period)
    return [bool((index + 1) % max(1, every)) for index in range(count)]


def gemma(
    build: Build, *, norms: int, qk_norm: bool, prefix: str = "model", local_rotary: bool = False
) -> None:
    """Gemma 1 to 3.

    Args:
        build: the model.
        norms: norms in each layer.
        qk_norm: query and key have norms.
        prefix: vLLM's name of the stack.
        local_rotary: windowed layers have a cache of their own.
    """
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    windowed = windowed_layers(build, 6) if local_rotary else [False] * build.integer("num_hidden_layers")
    bias = build.flag("attention_bias")

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        inventory.qkv(f"{name}.self_attn.qkv_proj", hidden, build.heads, build.kv_heads, size, bias=bias)
        inventory.row(f"{name}.self_attn.o_proj", build.heads * size, hidden, bias=bias)
        inventory.numbers(norms * hidden + (2 * size if qk_norm else 0))
        inventory.attention()
        _rotary(build, size, windowed=windowed[index], local=local_rotary)
        inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    inventory.buffers += inventory.element
    build.stack(len(windowed), add, lambda index: windowed[index])
    build.ends(tied=tied(build, default=True), everywhere="norm")


def _rotary(build: Build, size: int, *, windowed: bool, local: bool) -> None:
    text = build.text
    if local and windowed and not rope_parameters(text, "sliding_attention").get("rope_theta"):
        text = {"max_position_embeddings": build.integer("max_position_embeddings", default=8192)}
    kind = "sliding_attention" if windowed else "full_attention"
    add_rotary(build.inventory, text, size, source=build.config.source, layer_type=kind if local else None)


def gemma3_vision(build: Build) -> None:
    """Gemma 3 with SigLIP: a tower, and one matrix to the language model's width."""
    if not build.options.language_model_only:
        part = build.part("vision_config")
        clip_tower(build, part, "vision_tower.vision_model")
        seen = build.of(part, "hidden_size")
        build.inventory.numbers(seen * (build.hidden + 1))
    gemma(build, norms=4, qk_norm=True, prefix="language_model.model", local_rotary=True)


def gemma4(build: Build, prefix: str = "model") -> None:
    """Gemma 4: full layers have their own heads, experts stand beside the dense network."""
    inventory, hidden = build.inventory, build.hidden
    count = build.integer("num_hidden_layers")
    windowed = windowed_layers(build, 6)
    shared_from = count - build.integer("num_kv_shared_layers", default=0)
    experts = build.integer("num_experts", default=0)
    per_layer = build.integer("hidden_size_per_layer_input", default=0)

    def shares(index: int) -> bool:
        return index >= shared_from > 0

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        _gemma4_attention(build, f"{name}.self_attn", windowed=windowed[index], shares=shares(index))
        wide = 2 if shares(index) and build.flag("use_double_wide_mlp") else 1
        inventory.gated_mlp(f"{name}.mlp", hidden, wide * build.integer("intermediate_size"))
        inventory.numbers(4 * hidden)
        inventory.buffers += inventory.element
        if experts:
            inventory.numbers(experts + 4 * hidden)
            inventory.gate(f"{name}.router.proj", hidden, experts)
            inventory.buffers += inventory.element
            size = build.integer("moe_intermediate_size", "expert_intermediate_size")
            inventory.experts(f"{name}.experts", experts, hidden, size)
        if per_layer:
            inventory.column(f"{name}.per_layer_input_gate", hidden, per_layer, whole=True)
            inventory.column(f"{name}.per_layer_projection", per_layer, hidden, whole=True)
            inventory.numbers(hidden)

    inventory.buffers += inventory.element
    if per_layer:
        _per_layer_inputs(build, prefix, count * per_layer, per_layer)
    build.stack(count, add, lambda index: (windowed[index], shares(index)))
    build.ends(tied=tied(build, default=True), everywhere="norm")


def _per_layer_inputs(build: Build, prefix: str, width: int, per_layer: int) -> None:
    """The embeddings that each layer reads besides."""
    inventory = build.inventory
    inventory.buffers += 3 * inventory.element
    if build.first:
        rows = build.integer("vocab_size_per_layer_input", default=build.vocabulary)
        inventory.embedding(rows, width)
        inventory.column(f"{prefix}.per_layer_model_projection", build.hidden, width)
        inventory.numbers(per_layer)


def _gemma4_attention(build: Build, name: str, *, windowed: bool, shares: bool) -> None:
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    size, kv_heads = build.head_dim, build.kv_heads
    if not windowed:
        size = build.integer("global_head_dim", default=size)
        if build.flag("attention_k_eq_v"):
            kv_heads = build.integer("num_global_key_value_heads", default=kv_heads)
    bias = build.flag("attention_bias")
    if shares:
        inventory.column(f"{name}.q_proj", hidden, heads * size, bias=bias)
    else:
        inventory.qkv(f"{name}.qkv_proj", hidden, heads, kv_heads, size, bias=bias)
        inventory.numbers(size)
    inventory.row(f"{name}.o_proj", heads * size, hidden, bias=bias)
    inventory.numbers(size)
    inventory.attention()
    kind = "sliding_attention" if windowed else "full_attention"
    proportional = rope_parameters(build.text, kind).get("rope_type") == "proportional"
    columns = size if proportional else None
    add_rotary(inventory, build.text, size, source=build.config.source, layer_type=kind, columns=columns)


def gemma4_vision(build: Build) -> None:
    """Gemma 4 that sees: every rank holds the whole tower.

    Raises:
        NotModelledError: it hears too, or its tower clips.
    """
    if not build.options.language_model_only:
        if isinstance(build.config.data.get("audio_config"), dict):
            raise NotModelledError("Gemma 4 with an audio tower")
        _gemma4_tower(build, build.part("vision_config"))
    gemma4(build, "language_model.model")


def _gemma4_tower(build: Build, part: dict[str, Any]) -> None:
    inventory = build.inventory
    if part.get("use_clipped_linears") is True:
        raise NotModelledError("Gemma 4 with clipped linear layers")
    hidden, layers = build.of(part, "hidden_size"), build.of(part, "num_hidden_layers")
    heads, size = build.of(part, "num_attention_heads"), build.of(part, "head_dim")
    kv_heads, intermediate = build.of(part, "num_key_value_heads"), build.of(part, "intermediate_size")
    positions = build.of(part, "position_embedding_size", default=10240)
    patch = 3 * build.of(part, "patch_size") ** 2
    attention = hidden * size * (2 * heads + 2 * kv_heads) + 2 * size
    inventory.numbers(layers * (attention + 3 * hidden * intermediate + 4 * hidden))
    inventory.numbers((2 * positions + patch) * hidden)
    inventory.column("embed_vision.embedding_projection", hidden, build.hidden, whole=True)
    inventory.buffers += 2 * 4 * (size // 4)
    if part.get("standardize") is True:
        inventory.buffers += 2 * hidden * inventory.element
