"""Decoders whose layers route each token to a few experts.

Source: vLLM 0.32 ``models/mixtral.py``, ``qwen3_moe.py``, ``qwen2_moe.py``, ``minimax_m2.py``, ``gpt_oss.py``, ``mimo_v2.py``,
``granitemoe.py``, ``olmoe.py``, ``phimoe.py``.
"""

from fitserve.memory.weights.families.dense import Dense, attention, tied
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary
from fitserve.memory.weights.shapes import kv_heads_on_rank

_FLOAT32 = 4


def mixtral(build: Build) -> None:
    """Mixtral: every layer routes to experts of the full width."""
    inventory, hidden = build.inventory, build.hidden
    experts, intermediate = build.integer("num_local_experts"), build.integer("intermediate_size")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(qkv_bias=False, out_bias=False), f"{name}.self_attn")
        inventory.numbers(experts * hidden + 2 * hidden)
        inventory.experts(f"{name}.block_sparse_moe.experts", experts, hidden, intermediate)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False))


def qwen_moe(build: Build, how: Dense, prefix: str = "model", head: str = "lm_head") -> None:
    """Qwen2 and Qwen3 with experts, and an expert that every token passes where there is one."""
    inventory, hidden = build.inventory, build.hidden
    dense_layers = build.text.get("mlp_only_layers")
    only_dense = frozenset(dense_layers) if isinstance(dense_layers, list) else frozenset()
    experts = build.integer("num_experts", "num_local_experts", default=0)
    step = max(1, build.integer("decoder_sparse_step", default=1))

    def routed(index: int) -> bool:
        return index not in only_dense and experts > 0 and (index + 1) % step == 0

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        attention(build, how, f"{name}.self_attn")
        inventory.numbers(2 * hidden)
        if routed(index):
            qwen_experts(build, f"{name}.mlp", experts)
        else:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add, routed)
    build.ends(tied=tied(build, default=False), head=head)


def qwen_experts(build: Build, name: str, experts: int) -> None:
    """Gate, experts, and the shared expert with its own gate."""
    inventory, hidden = build.inventory, build.hidden
    inventory.column(f"{name}.gate", hidden, experts, whole=True)
    inventory.experts(f"{name}.experts", experts, hidden, build.integer("moe_intermediate_size"))
    shared = build.integer("shared_expert_intermediate_size", default=0)
    if shared:
        inventory.gated_mlp(f"{name}.shared_expert", hidden, shared)
        inventory.numbers(hidden)


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
        inventory.numbers(experts * hidden + experts, _FLOAT32)
        inventory.experts(f"{name}.block_sparse_moe.experts", experts, hidden, build.integer("intermediate_size"))

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
        inventory.numbers(build.heads // inventory.tp + experts * (hidden + 1) + 2 * hidden)
        inventory.attention()
        add_rotary(inventory, build.text, size, source=build.config.source, element=_FLOAT32)
        inventory.experts(
            f"{name}.mlp.experts", experts, hidden, build.integer("intermediate_size"), biased=True
        )

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False))
