"""Models with latent attention: one compressed vector a token, and a cache for the indexer of sparse attention.

Source: vLLM 0.32 ``models/deepseek_v2.py`` and ``layers/attention/mla_attention.py``.
"""

from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError


def deepseek(facts: Facts) -> list[Layer]:
    """DeepSeek V2 to V3.2, Kimi K2, GLM 5."""
    if facts.optional("kv_lora_rank") is None:
        raise NotModelledError(f"{facts.config.architecture} without latent attention")
    if not facts.since("0.8.0"):
        raise NotModelledError("latent attention of the V0 engine")
    sparse = facts.text.get("index_topk") is not None
    return [
        part
        for layer in range(facts.layers)
        for part in deepseek_layer(facts, layer, indexer=sparse and _has_indexer(facts, layer))
    ]


def deepseek_layer(facts: Facts, layer: int, *, indexer: bool) -> list[Layer]:
    """The caches of one layer: its vectors and, with sparse attention, the indexer's."""
    size = facts.integer("kv_lora_rank") + facts.integer("qk_rope_head_dim")
    vectors = Attention(layer=layer, kind="mla", kv_heads=1, head_size=size, part=1)
    if indexer and facts.text.get("index_topk") is not None:
        return [_indexer(facts, layer), vectors]
    return [vectors]


def _indexer(facts: Facts, layer: int) -> Layer:
    """One byte an element, and one float32 scale for each 128 of them."""
    size = facts.integer("index_head_dim")
    size += size // 128 * 4
    return Attention(
        layer=layer, kind="mla", kv_heads=1, head_size=size, token_bytes=size, kernel_block_size=64
    )


def minimax_m3(facts: Facts) -> list[Layer]:
    """MiniMax M3: every layer keeps every token, those with sparse attention also one vector for their indexer.

    Source: ``models/minimax_m3``, vLLM 0.26 to 0.33; the indexer's cache is bfloat16 where nothing else is asked for.
    """
    sparse = facts.part("sparse_attention_config")
    flags = sparse.get("sparse_attention_freq")
    size = sparse.get("sparse_index_dim")
    if not isinstance(flags, list) or not isinstance(size, int) or len(flags) < facts.layers:
        raise NotModelledError("MiniMax M3 without sparse_attention_config")
    layers: list[Layer] = []
    for layer in range(facts.layers):
        layers.append(Attention(layer=layer, kv_heads=facts.kv_heads, head_size=facts.head_size))
        if flags[layer]:
            layers.append(
                Attention(
                    layer=layer,
                    kind="mla",
                    kv_heads=1,
                    head_size=size,
                    token_bytes=2 * size,
                    part=1,
                    kernel_block_size=128,
                )
            )
    return layers


def _has_indexer(facts: Facts, layer: int) -> bool:
    """Some layers use the choice of an earlier one."""
    if not facts.since("0.24.0"):
        return True
    pattern = facts.text.get("index_topk_pattern")
    if isinstance(pattern, list | str) and layer < len(pattern):
        return pattern[layer] != "S"
    every = facts.positive("index_topk_freq", default=1)
    offset = facts.integer("index_skip_topk_offset", default=2)
    return max(layer - offset + 1, 0) % every == 0
