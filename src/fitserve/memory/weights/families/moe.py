"""Decoders whose layers route each token to a few experts.

Source: vLLM 0.32 ``models/mixtral.py``, ``qwen3_moe.py``, ``qwen2_moe.py``, ``minimax_m2.py``, ``gpt_oss.py``, ``mimo_v2.py``,
``granitemoe.py``, ``olmoe.py``, ``phimoe.py``.
"""

from fitserve.memory.weights.families.dense import Dense, attention, tied
from fitserve.memory.weights.families.state import granite_experts
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_frequencies, add_rotary
from fitserve.memory.weights.shapes import NotModelledError, kv_heads_on_rank

_FLOAT32 = 4


def mixtral(build: Build) -> None:
    """Mixtral: every layer routes to experts of the full width."""
    inventory, hidden = build.inventory, build.hidden
    experts, intermediate = build.integer("num_local_experts"), build.integer("intermediate_size")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(qkv_bias=False, out_bias=False), f"{name}.self_attn")
        inventory.numbers(2 * hidden)
        inventory.gate(f"{name}.block_sparse_moe.gate", hidden, experts)
        inventory.experts(f"{name}.block_sparse_moe.experts", experts, hidden, intermediate)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False), everywhere="embeddings norm head")


def qwen_moe(build: Build, how: Dense, *, mrope_factor: int = 4) -> None:
    """Qwen2 and Qwen3 with experts, and an expert that every token passes where there is one."""
    inventory, hidden = build.inventory, build.hidden
    dense_layers = build.text.get("mlp_only_layers")
    only_dense = frozenset(dense_layers) if isinstance(dense_layers, list) else frozenset()
    experts = build.integer("num_experts", "num_local_experts", default=0)
    step = max(1, build.integer("decoder_sparse_step", default=1))
    # Qwen2 never quantises what routes, Qwen3 does unless the checkpoint says otherwise.
    plain = build.config.architecture.startswith("Qwen2")

    def routed(index: int) -> bool:
        return index not in only_dense and experts > 0 and (index + 1) % step == 0

    def add(index: int) -> None:
        name = f"{how.prefix}.layers.{index}"
        attention(build, how, f"{name}.self_attn", mrope_factor=mrope_factor)
        inventory.numbers(2 * hidden)
        if routed(index):
            qwen_experts(build, f"{name}.mlp", experts, plain_gate=plain)
        else:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add, routed)
    build.ends(tied=tied(build, default=False), head=how.head, everywhere="embeddings norm head")


def qwen_experts(build: Build, name: str, experts: int, *, plain_gate: bool = False) -> None:
    """Gate, experts, and the shared expert with its own gate."""
    inventory, hidden = build.inventory, build.hidden
    if plain_gate:
        inventory.gate(f"{name}.gate", hidden, experts)
    else:
        inventory.column(f"{name}.gate", hidden, experts, whole=True)
    inventory.experts(f"{name}.experts", experts, hidden, build.integer("moe_intermediate_size"))
    shared = build.integer("shared_expert_intermediate_size", default=0)
    if shared:
        hybrid = "Qwen3" in build.config.architecture and build.at_least("0.20.0")
        inventory.gated_mlp(f"{name}.shared_expert", hidden, shared, whole=hybrid and build.shares_sequences)
        inventory.gate(f"{name}.shared_expert_gate", hidden, 1)


def minimax_m2(build: Build) -> None:
    """MiniMax M2: norms over all heads, gates in float32."""
    inventory, hidden = build.inventory, build.hidden
    experts = build.integer("num_local_experts")
    size, own_heads = build.head_dim, build.heads // inventory.tp
    columns = build.integer("rotary_dim", default=size)
    own_kv_heads = kv_heads_on_rank(build.kv_heads, inventory.tp)

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(qkv_bias=False, out_bias=False, rotary=False), f"{name}.self_attn")
        add_rotary(inventory, build.text, size, source=build.config.source, columns=columns)
        inventory.numbers((own_heads + own_kv_heads) * size + 2 * hidden)
        inventory.gate(f"{name}.block_sparse_moe.gate", hidden, experts, _FLOAT32)
        inventory.numbers(experts, _FLOAT32)
        inventory.experts(
            f"{name}.block_sparse_moe.experts", experts, hidden, build.integer("intermediate_size")
        )

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False))


def gpt_oss(build: Build) -> None:
    """gpt-oss: biases everywhere, a sink for each head."""
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    experts = build.integer("num_local_experts", "num_experts")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        inventory.qkv(f"{name}.attn.qkv_proj", hidden, build.heads, build.kv_heads, size, bias=True)
        inventory.row(f"{name}.attn.o_proj", build.heads * size, hidden, bias=True)
        inventory.numbers(build.heads // inventory.tp + experts + 2 * hidden)
        inventory.gate(f"{name}.mlp.router", hidden, experts)
        inventory.attention()
        add_rotary(inventory, build.text, size, source=build.config.source, element=_FLOAT32)
        inventory.experts(
            f"{name}.mlp.experts", experts, hidden, build.integer("intermediate_size"), biased=True
        )

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False), everywhere="embeddings norm head")


def mimo_v2(build: Build) -> None:
    """MiMo V2: full and windowed attention with heads of their own, keys wider than values."""
    inventory, hidden, text = build.inventory, build.hidden, build.text
    pattern = text.get("hybrid_layer_pattern")
    frequency = text.get("moe_layer_freq")
    if not isinstance(pattern, list) or not isinstance(frequency, list):
        raise NotModelledError("MiMo V2 without hybrid_layer_pattern and moe_layer_freq")
    experts = build.integer("n_routed_experts")
    gate = 4 if text.get("moe_router_dtype", "float32") == "float32" else inventory.element

    def kind(index: int) -> tuple[bool, bool]:
        return pattern[index] == 1, bool(frequency[index])

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        windowed, routed = kind(index)
        begin = "swa_" if windowed else ""
        heads = build.integer(f"{begin}num_attention_heads", "num_attention_heads")
        kv_heads = build.integer(f"{begin}num_key_value_heads", "num_key_value_heads")
        size = build.integer(f"{begin}head_dim", "head_dim")
        value = build.integer(f"{begin}v_head_dim", "v_head_dim", default=size)
        bias = build.flag("attention_bias")
        inventory.qkv(f"{name}.self_attn.qkv_proj", hidden, heads, kv_heads, size, value_dim=value, bias=bias)
        inventory.row(f"{name}.self_attn.o_proj", heads * value, hidden)
        inventory.attention()
        sinks = build.flag("add_swa_attention_sink_bias" if windowed else "add_full_attention_sink_bias")
        inventory.numbers(2 * hidden + (heads // inventory.tp if sinks else 0))
        add_rotary(inventory, text, size, source=build.config.source, key=windowed)
        if routed:
            inventory.gate(f"{name}.mlp.gate", hidden, experts, gate)
            inventory.numbers(experts, _FLOAT32)
            inventory.experts(f"{name}.mlp.experts", experts, hidden, build.integer("moe_intermediate_size"))
        else:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add, kind)
    build.ends(tied=tied(build, default=False))


def llama4(build: Build, prefix: str = "model", head: str = "lm_head") -> None:
    """Llama 4: dense and routed layers in turn, a shared expert in each routed one."""
    inventory, hidden = build.inventory, build.hidden
    experts, step = build.integer("num_local_experts"), build.integer("interleave_moe_layer_step")
    chosen = build.text.get("moe_layers")
    turns = build.text.get("no_rope_layers")
    count = build.integer("num_hidden_layers")

    def routed(index: int) -> bool:
        if isinstance(chosen, list) and chosen:
            return index in chosen
        return step > 0 and (index + 1) % step == 0

    def rotates(index: int) -> bool:
        if isinstance(turns, list) and len(turns) >= count:
            return bool(turns[index])
        return bool((index + 1) % 4)

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        attention(build, Dense(rotary=rotates(index)), f"{name}.self_attn")
        inventory.numbers(2 * hidden)
        if routed(index):
            inventory.gate(f"{name}.feed_forward.router", hidden, experts)
            inventory.gated_mlp(
                f"{name}.feed_forward.shared_expert",
                hidden,
                build.integer("intermediate_size"),
                whole=build.shares_sequences,
            )
            inventory.experts(
                f"{name}.feed_forward.experts", experts, hidden, build.integer("intermediate_size")
            )
        else:
            inventory.gated_mlp(f"{name}.feed_forward", hidden, build.integer("intermediate_size_mlp"))

    build.stack(count, add, lambda index: (routed(index), rotates(index)))
    build.ends(tied=tied(build, default=False), head=head)


def granite_moe(build: Build) -> None:
    """Granite 3 with experts, with or without a shared network."""
    inventory = build.inventory
    shared = build.integer("shared_intermediate_size", default=0)

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(), f"{name}.self_attn")
        inventory.numbers(2 * build.hidden)
        granite_experts(build, name, build.integer("num_local_experts"), shared)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False), everywhere="norm")


def olmoe(build: Build) -> None:
    """OLMoE: norms over all heads, a gate and experts in every layer."""
    inventory, hidden, experts = build.inventory, build.hidden, build.integer("num_experts")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(qkv_bias=False, out_bias=False), f"{name}.self_attn")
        inventory.numbers((build.heads + build.kv_heads) * build.head_dim + 2 * hidden)
        inventory.gate(f"{name}.mlp.gate", hidden, experts)
        inventory.experts(f"{name}.mlp.experts", experts, hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False), everywhere="embeddings norm head")


def phi_moe(build: Build) -> None:
    """Phi 3.5 MoE."""
    inventory, hidden, experts = build.inventory, build.hidden, build.integer("num_local_experts")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(rotary=False), f"{name}.self_attn")
        inventory.numbers(4 * hidden)
        inventory.gate(f"{name}.mlp.router", hidden, experts)
        inventory.experts(f"{name}.mlp.experts", experts, hidden, build.integer("intermediate_size"))
        add_frequencies(build, build.head_dim)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(norm=2 * hidden, tied=tied(build, default=False))


def glm4_moe(build: Build) -> None:
    """GLM 4.5 to 4.7 without latent attention."""
    inventory, hidden, experts = build.inventory, build.hidden, build.integer("n_routed_experts")
    first, intermediate = (
        build.integer("first_k_dense_replace", default=0),
        build.integer("moe_intermediate_size"),
    )
    how = Dense(out_bias=False, qk_norm="head" if build.flag("use_qk_norm") else "")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, how, f"{name}.self_attn")
        inventory.numbers(2 * hidden)
        if index < first:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))
            return
        inventory.gate(f"{name}.mlp.gate", hidden, experts, _FLOAT32)
        inventory.numbers(experts, _FLOAT32)
        shared = build.integer("n_shared_experts", default=0)
        if shared:
            inventory.gated_mlp(f"{name}.mlp.shared_experts", hidden, shared * intermediate)
        inventory.experts(f"{name}.mlp.experts", experts, hidden, intermediate)

    build.stack(build.integer("num_hidden_layers"), add, lambda index: index < first)
    build.ends(tied=tied(build, default=False))


def ernie45_moe(build: Build) -> None:
    """ERNIE 4.5 with experts."""
    inventory, hidden, experts = build.inventory, build.hidden, build.integer("moe_num_experts")
    intermediate = build.integer("moe_intermediate_size")
    start, every = (
        build.integer("moe_layer_start_index", default=0),
        max(1, build.integer("moe_layer_interval", default=1)),
    )
    count = build.integer("num_hidden_layers")
    end = build.integer("moe_layer_end_index", default=count - 1)
    bias = build.flag("use_bias")

    def routed(index: int) -> bool:
        return (index + 1) % every == 0 and start <= index <= end

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(qkv_bias=bias, out_bias=bias), f"{name}.self_attn")
        inventory.numbers(2 * hidden)
        if not routed(index):
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"), bias=bias)
            return
        inventory.gate(f"{name}.mlp.gate", hidden, experts, _FLOAT32)
        inventory.numbers(experts, _FLOAT32)
        shared = build.integer("moe_num_shared_experts", default=0)
        if shared:
            inventory.gated_mlp(f"{name}.mlp.shared_experts", hidden, shared * intermediate, bias=bias)
        inventory.experts(f"{name}.mlp.experts", experts, hidden, intermediate)

    build.stack(count, add, routed)
    build.ends(tied=tied(build, default=True))


def dbrx(build: Build) -> None:
    """DBRX."""
    inventory, hidden = build.inventory, build.hidden
    attend, inner = build.text.get("attn_config"), build.text.get("ffn_config")
    if not isinstance(attend, dict) or not isinstance(inner, dict):
        raise NotModelledError("DBRX without attn_config and ffn_config")
    experts, size = build.of(inner, "moe_num_experts"), hidden // build.heads

    def add(index: int) -> None:
        name = f"transformer.blocks.{index}"
        kv_heads = build.of(attend, "kv_n_heads")
        inventory.qkv(f"{name}.norm_attn_norm.attn.Wqkv", hidden, build.heads, kv_heads, size, shards=())
        inventory.row(f"{name}.norm_attn_norm.attn.out_proj", hidden, hidden)
        inventory.numbers(2 * hidden)
        inventory.gate(f"{name}.ffn.router", hidden, experts)
        inventory.attention()
        positions = build.integer("max_seq_len")
        add_rotary(inventory, build.text, size, source=build.config.source, max_position=positions)
        inventory.experts(f"{name}.ffn.experts", experts, hidden, build.of(inner, "ffn_hidden_size"))

    build.stack(build.integer("n_layers"), add)
    build.ends(tied=False, everywhere="embeddings norm head")
