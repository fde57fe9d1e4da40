"""DeepSeek's attention over a compressed cache, with experts: DeepSeek V2 to V3.2, GLM 5, Kimi K2.

Source: vLLM 0.32 ``models/deepseek_v2.py``.
"""

from fitserve.memory.weights.families.dense import tied
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary

_FLOAT32 = 4


def mla_attention(build: Build, name: str, *, indexer: bool) -> None:
    """One layer's attention: low-rank query, compressed key and value, and the indexer of sparse attention."""
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    nope, rope = build.integer("qk_nope_head_dim"), build.integer("qk_rope_head_dim")
    value, kv_rank = build.integer("v_head_dim"), build.integer("kv_lora_rank")
    query_rank = build.integer("q_lora_rank", default=0)
    if query_rank:
        inventory.column(
            f"{name}.fused_qkv_a_proj",
            hidden,
            (query_rank, kv_rank + rope),
            shards=("q_a_proj", "kv_a_proj_with_mqa"),
            whole=True,
        )
        inventory.numbers(query_rank)
        inventory.column(f"{name}.q_b_proj", query_rank, heads * (nope + rope))
    else:
        inventory.column(f"{name}.kv_a_proj_with_mqa", hidden, kv_rank + rope, whole=True)
        inventory.column(f"{name}.q_proj", hidden, heads * (nope + rope))
    inventory.numbers(kv_rank)
    inventory.column(f"{name}.kv_b_proj", kv_rank, heads * (nope + value))
    inventory.row(f"{name}.o_proj", heads * value, hidden)
    inventory.attention(latent=True)
    mla_rotary(build, rope, "interleaved")
    if indexer:
        _indexer(build, f"{name}.indexer", query_rank, rope)


def mla_rotary(build: Build, columns: int, style: str) -> None:
    """The cache of the turned part; the indexer turns its own way where the model says so."""
    add_rotary(build.inventory, build.text, columns, source=build.config.source, columns=columns, key=style)


def _indexer(build: Build, name: str, query_rank: int, rope: int) -> None:
    """What picks the tokens that sparse attention reads."""
    inventory = build.inventory
    heads, size = build.integer("index_n_heads"), build.integer("index_head_dim")
    inventory.column(f"{name}.wq_b", query_rank, heads * size, whole=True)
    inventory.numbers(build.hidden * (size + heads))
    inventory.numbers(2 * size, _FLOAT32)
    interleaved = build.flag("indexer_rope_interleave")
    mla_rotary(build, rope, "interleaved" if interleaved else "halves")


def has_indexer(build: Build, index: int) -> bool:
    """Whether a layer picks tokens itself, or takes those of a layer before.

    Source: vLLM 0.32 ``models/deepseek_v2.py`` (``index_topk_pattern``, ``index_topk_freq``).
    """
    if "index_topk" not in build.text:
        return False
    pattern = build.text.get("index_topk_pattern")
    if isinstance(pattern, str | list):
        return not (index < len(pattern) and pattern[index] == "S")
    every = max(1, build.integer("index_topk_freq", default=1))
    offset = build.integer("index_skip_topk_offset", default=2)
    return max(index - offset + 1, 0) % every == 0


def deepseek_experts(build: Build, name: str, *, wide_gate: bool = False) -> None:
    """Gate with its correction, routed experts, and those that every token passes."""
    inventory, hidden = build.inventory, build.hidden
    experts, intermediate = build.integer("n_routed_experts"), build.integer("moe_intermediate_size")
    inventory.gate(f"{name}.gate", hidden, experts, _FLOAT32 if wide_gate else None)
    if build.text.get("topk_method") == "noaux_tc":
        inventory.numbers(experts, _FLOAT32)
    inventory.experts(f"{name}.experts", experts, hidden, intermediate)
    shared = build.integer("n_shared_experts", default=0)
    if shared:
        inventory.gated_mlp(
            f"{name}.shared_experts",
            hidden,
            shared * intermediate,
            whole=build.shares_sequences and not wide_gate,
        )


def deepseek(build: Build, prefix: str = "model", head: str = "lm_head", *, wide_gate: bool = False) -> None:
    """Count the model; its draft layers are not loaded with it."""
    inventory, hidden = build.inventory, build.hidden
    first, every = (
        build.integer("first_k_dense_replace", default=0),
        max(1, build.integer("moe_layer_freq", default=1)),
    )
    routing = build.integer("n_routed_experts", default=0) > 0

    def routed(index: int) -> bool:
        return routing and index >= first and index % every == 0

    def kind(index: int) -> tuple[bool, bool]:
        return routed(index), has_indexer(build, index)

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        mla_attention(build, f"{name}.self_attn", indexer=has_indexer(build, index))
        inventory.numbers(2 * hidden)
        if routed(index):
            deepseek_experts(build, f"{name}.mlp", wide_gate=wide_gate)
        else:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add, kind)
    build.ends(head=head)


def minicpm3(build: Build) -> None:
    """MiniCPM 3: DeepSeek's low-rank projections before ordinary attention.

    Source: vLLM 0.32 ``models/minicpm3.py``.
    """
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    nope, rope = build.integer("qk_nope_head_dim"), build.integer("qk_rope_head_dim")
    query_rank, kv_rank = build.integer("q_lora_rank"), build.integer("kv_lora_rank")
    value = build.integer("v_head_dim", default=hidden // max(1, heads))

    def add(index: int) -> None:
        name = f"model.layers.{index}.self_attn"
        inventory.column(f"{name}.q_a_proj", hidden, query_rank, whole=True)
        inventory.column(f"{name}.q_b_proj", query_rank, heads * (nope + rope))
        inventory.column(f"{name}.kv_a_proj_with_mqa", hidden, kv_rank + rope, whole=True)
        inventory.column(f"{name}.kv_b_proj", kv_rank, heads * (nope + value))
        inventory.row(f"{name}.o_proj", heads * value, hidden)
        inventory.numbers(query_rank + kv_rank + 2 * hidden)
        inventory.attention()
        mla_rotary(build, rope, "halves")
        inventory.gated_mlp(f"model.layers.{index}.mlp", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=True), everywhere="norm")
