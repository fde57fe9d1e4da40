"""Models whose layers all keep every token, or all the same window.

Source: ``model_executor/models/*.py`` and ``Attention.__init__`` of vLLM 0.9.1 to 0.33.0: the window of a model whose
layers are all alike is set for every layer.
"""

from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError


def dense(facts: Facts) -> list[Layer]:
    """Every layer alike; a ``sliding_window`` counts for all of them.

    From 0.27 on it does not where the configuration lists other types of layers.

    Source: ``EngineArgs.create_engine_config``, vLLM 0.19 to 0.32.
    """
    window = facts.optional("sliding_window")
    types = set(facts.strings("layer_types"))
    if len(types) > 1:
        raise NotModelledError(
            f"layers of several types in {facts.config.architecture}: {', '.join(sorted(types))}"
        )
    if types - {"sliding_attention"} and facts.since("0.27.0"):
        window = None
    return alike(facts, facts.kv_heads, facts.head_size, window or None)


def alike(
    facts: Facts, kv_heads: int, head_size: int, window: int | None = None, layers: int | None = None
) -> list[Layer]:
    """Layers that are all the same."""
    return [
        Attention(
            layer=layer,
            kind="sliding" if window else "full",
            kv_heads=kv_heads,
            head_size=head_size,
            window=window,
        )
        for layer in range(facts.layers if layers is None else layers)
    ]


def full(facts: Facts) -> list[Layer]:
    """Every layer keeps every token, whatever the configuration says of windows."""
    return alike(facts, facts.kv_heads, facts.head_size)


def mistral(facts: Facts) -> list[Layer]:
    """Mistral: a window of 4,096 where the configuration does not mention it at all.

    Source: the default of ``MistralConfig`` in transformers.
    """
    if "sliding_window" not in facts.text and facts.text.get("model_type") == "mistral":
        return alike(facts, facts.kv_heads, facts.head_size, 4096)
    return dense(facts)


def qwen(facts: Facts) -> list[Layer]:
    """Qwen 2 and 3 and their kin: a window only where ``use_sliding_window`` asks for it."""
    if facts.text.get("use_sliding_window"):
        raise NotModelledError("use_sliding_window of Qwen models: windows in some layers")
    return full(facts)


def falcon(facts: Facts) -> list[Layer]:
    """Falcon: one KV head with ``multi_query`` in the old architecture."""
    kv_heads = facts.kv_heads
    if not facts.text.get("new_decoder_architecture"):
        kv_heads = 1 if facts.text.get("multi_query", True) else facts.heads
    return alike(facts, kv_heads, facts.hidden // facts.heads)


def gpt_bigcode(facts: Facts) -> list[Layer]:
    """StarCoder: one KV head with ``multi_query``."""
    kv_heads = 1 if facts.text.get("multi_query", True) else facts.heads
    return alike(facts, kv_heads, facts.hidden // facts.heads)


def chatglm(facts: Facts) -> list[Layer]:
    """ChatGLM 2 to GLM 4: grouped KV heads with ``multi_query_attention``."""
    grouped = facts.text.get("multi_query_attention")
    kv_heads = facts.integer("multi_query_group_num") if grouped else facts.heads
    return alike(facts, kv_heads, facts.hidden // facts.heads)


def mpt(facts: Facts) -> list[Layer]:
    """MPT and DBRX: KV heads stand in ``attn_config``."""
    found = facts.part("attn_config").get("kv_n_heads")
    kv_heads = found if isinstance(found, int) and found > 0 else facts.heads
    return alike(facts, kv_heads, facts.hidden // facts.heads)


def nemotron_nas(facts: Facts) -> list[Layer]:
    """Nemotron NAS: every layer has KV heads of its own, or no attention at all.

    Source: vLLM 0.32 ``models/nemotron_nas.py``.
    """
    blocks = facts.text.get("block_configs")
    if not isinstance(blocks, list):
        raise NotModelledError("DeciLM without block_configs")
    layers: list[Layer] = []
    for layer, block in enumerate(blocks):
        attention = block.get("attention", {}) if isinstance(block, dict) else {}
        if not isinstance(attention, dict):
            raise NotModelledError(f"DeciLM layer {layer} with {attention!r} as attention")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            continue
        per_group = attention.get("n_heads_in_group")
        if not isinstance(per_group, int) or per_group < 1:
            raise NotModelledError(f"DeciLM layer {layer} without n_heads_in_group")
        layers.append(Attention(layer=layer, kv_heads=facts.heads // per_group, head_size=facts.head_size))
    return layers


def whisper(facts: Facts) -> list[Layer]:
    """Whisper: every decoder layer keeps its own tokens and the encoder's.

    The encoder's tokens count as ``max_num_batched_tokens`` from 0.13 on, before as its longest input.

    Source: ``CrossAttentionSpec`` and ``SchedulerConfig.max_num_encoder_input_tokens``, vLLM 0.10.2 to 0.33.
    """
    heads = facts.positive("decoder_attention_heads")
    size = facts.hidden // heads
    encoder = facts.integer("max_source_positions", default=1500)
    if facts.since("0.13.0"):
        encoder = facts.options.max_num_batched_tokens
    layers: list[Layer] = []
    for layer in range(facts.integer("decoder_layers")):
        layers += [
            Attention(layer=layer, kv_heads=heads, head_size=size),
            Attention(layer=layer, kind="cross", kv_heads=heads, head_size=size, window=encoder),
        ]
    return layers


def minicpm3(facts: Facts) -> list[Layer]:
    """MiniCPM 3: latent attention that is kept uncompressed, with a key and a padded value for every head."""
    size = facts.integer("qk_nope_head_dim") + facts.integer("qk_rope_head_dim")
    return alike(facts, facts.heads, size)


def embedding(facts: Facts) -> list[Layer]:
    """A language model that embeds: as it is, or an encoder where it is not causal."""
    if facts.text.get("is_causal") is False or facts.text.get("use_bidirectional_attention"):
        return []
    return mistral(facts) if facts.text.get("model_type") == "mistral" else qwen_or_dense(facts)


def qwen_or_dense(facts: Facts) -> list[Layer]:
    """Qwen's rule for windows where the configuration is Qwen's."""
    return qwen(facts) if str(facts.text.get("model_type", "")).startswith("qwen") else dense(facts)


def encoder_only(_facts: Facts) -> list[Layer]:
    """Encoders read the whole text at once and keep nothing."""
    return []
