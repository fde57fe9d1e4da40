"""Models that mix layers with a window or a chunk and layers that keep every token.

Source: ``model_executor/models`` of vLLM 0.9.1 to 0.33.0: ``gemma2.py``, ``gemma3.py``, ``gemma3n.py``, ``gemma4.py``,
``gpt_oss.py``, ``commandr.py``, ``llama4.py``, ``mimo_v2.py``, ``exaone4.py``, ``step3p5.py`` and ``llama.py``; the
defaults are those of the models' configuration classes in transformers.
"""

from collections.abc import Callable

from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError

SLIDING = "sliding_attention"
FULL = "full_attention"


def layer_types(facts: Facts, default: Callable[[int], bool]) -> list[bool]:
    """True for every layer with a window; where the configuration lists no types, as the default says."""
    listed = facts.strings("layer_types")
    if not listed:
        return [default(layer) for layer in range(facts.layers)]
    unknown = set(listed) - {SLIDING, FULL}
    if unknown or len(listed) < facts.layers:
        raise NotModelledError(
            f"layer_types of {facts.config.architecture}: {', '.join(sorted(unknown)) or 'too few'}"
        )
    return [name == SLIDING for name in listed[: facts.layers]]


def mixed(facts: Facts, sliding: list[bool], window: int) -> list[Layer]:
    """Layers with equal heads, some with a window."""
    return [
        Attention(
            layer=layer,
            kind="sliding" if is_sliding and window else "full",
            kv_heads=facts.kv_heads,
            head_size=facts.head_size,
            window=window if is_sliding and window else None,
        )
        for layer, is_sliding in enumerate(sliding)
    ]


def gemma2(facts: Facts) -> list[Layer]:
    """Gemma 2: every even layer has a window."""
    window = facts.integer("sliding_window", default=4096)
    return mixed(facts, layer_types(facts, lambda layer: layer % 2 == 0), window)


def gemma3(facts: Facts) -> list[Layer]:
    """Gemma 3: five layers with a window, then one without."""
    pattern = facts.positive("sliding_window_pattern", default=6)
    sliding = layer_types(facts, lambda layer: bool((layer + 1) % pattern))
    kv_heads = facts.integer("num_key_value_heads", default=4)
    head_size = facts.integer("head_dim", default=256)
    window = facts.integer("sliding_window", default=4096)
    return [
        Attention(
            layer=layer,
            kind="sliding" if is_sliding else "full",
            kv_heads=kv_heads,
            head_size=head_size,
            window=window if is_sliding else None,
        )
        for layer, is_sliding in enumerate(sliding)
    ]


def gemma3n(facts: Facts) -> list[Layer]:
    """Gemma 3n: the last layers use the caches of earlier ones."""
    sliding = layer_types(facts, lambda layer: bool((layer + 1) % 5))
    own = facts.layers - facts.integer("num_kv_shared_layers", default=15)
    return mixed(facts, sliding, facts.integer("sliding_window", default=512))[:own]


def gemma4(facts: Facts) -> list[Layer]:
    """Gemma 4: layers without a window have larger heads; the last layers may use the caches of earlier ones."""
    sliding = layer_types(facts, lambda layer: bool((layer + 1) % 6))
    window = facts.integer("sliding_window")
    global_size = facts.integer("global_head_dim", default=512)
    global_heads = facts.kv_heads
    if facts.text.get("attention_k_eq_v"):
        global_heads = facts.integer("num_global_key_value_heads", default=facts.kv_heads)
    own = facts.layers - facts.integer("num_kv_shared_layers", default=0)
    return [
        Attention(
            layer=layer,
            kind="sliding" if is_sliding else "full",
            kv_heads=facts.kv_heads if is_sliding else global_heads,
            head_size=facts.head_size if is_sliding else global_size,
            window=window if is_sliding else None,
        )
        for layer, is_sliding in enumerate(sliding[:own])
    ]


def gpt_oss(facts: Facts) -> list[Layer]:
    """GPT-OSS: every even layer has a window."""
    return mixed(
        facts, [layer % 2 == 0 for layer in range(facts.layers)], facts.integer("sliding_window", default=128)
    )


def command_r2(facts: Facts) -> list[Layer]:
    """Command R7B and A: three layers with a window, then one without; the window holds one token more from 0.29 on."""
    pattern = facts.positive("sliding_window_pattern", default=4)
    window = facts.integer("sliding_window", default=4096) + (1 if facts.since("0.29.0") else 0)
    return mixed(facts, layer_types(facts, lambda layer: bool((layer + 1) % pattern)), window)


def by_types(facts: Facts) -> list[Layer]:
    """Models that list a type for every layer."""
    if not facts.strings("layer_types"):
        raise NotModelledError(f"{facts.config.architecture} without layer_types")
    return mixed(facts, layer_types(facts, lambda _layer: False), facts.integer("sliding_window", default=0))


def llama4(facts: Facts) -> list[Layer]:
    """Llama 4: three layers keep their chunk, the fourth keeps every token.

    Chunks have groups of their own from 0.14 on; before, such a model runs without the hybrid manager unless a
    variable allows it.
    """
    chunk = facts.integer("attention_chunk_size", default=8192) if facts.since("0.10.0") else 0
    if not facts.since("0.14.0"):
        chunk = 0
    listed = facts.text.get("no_rope_layers")
    interval = facts.positive("no_rope_layer_interval", default=4)
    rope = listed if isinstance(listed, list) and listed else None
    layers: list[Layer] = []
    for layer in range(facts.layers):
        local = bool(rope[layer]) if rope else bool((layer + 1) % interval)
        layers.append(
            Attention(
                layer=layer,
                kind="chunked" if local and chunk else "full",
                kv_heads=facts.kv_heads,
                head_size=facts.head_size,
                window=chunk if local and chunk else None,
            )
        )
    return layers


def mimo_v2(facts: Facts) -> list[Layer]:
    """MiMo V2: layers with a window have heads of their own, and values smaller than keys.

    Values take their own size from 0.20 on; before, they are padded to the key's.
    """
    pattern = facts.text.get("hybrid_layer_pattern")
    if not isinstance(pattern, list) or len(pattern) < facts.layers:
        raise NotModelledError("MiMo V2 without hybrid_layer_pattern")
    own_values = facts.since("0.20.0")
    layers: list[Layer] = []
    for layer in range(facts.layers):
        sliding = pattern[layer] == 1
        prefix = "swa_" if sliding else ""
        head_size = facts.integer(f"{prefix}head_dim")
        layers.append(
            Attention(
                layer=layer,
                kind="sliding" if sliding else "full",
                kv_heads=facts.integer(f"{prefix}num_key_value_heads"),
                head_size=head_size,
                value_size=facts.integer(f"{prefix}v_head_dim", default=head_size) if own_values else None,
                window=facts.integer("sliding_window_size", "sliding_window") if sliding else None,
            )
        )
    return layers


def step3(facts: Facts) -> list[Layer]:
    """Step 3.5 and 3.7: listed layers have a window, with the KV heads of the others."""
    sliding = layer_types(facts, lambda layer: layer % 2 == 0)
    groups = facts.optional("num_attention_groups", "num_key_value_heads")
    window = facts.integer("sliding_window", default=0)
    return [
        Attention(
            layer=layer,
            kind="sliding" if is_sliding and window else "full",
            kv_heads=facts.heads if groups is None else groups,
            head_size=facts.head_size,
            window=window if is_sliding and window else None,
        )
        for layer, is_sliding in enumerate(sliding)
    ]
