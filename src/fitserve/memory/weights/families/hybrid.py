"""Decoders that mix attention with layers that keep a state: gated delta nets (Qwen3-Next, Qwen3.5).

Source: vLLM 0.32 ``models/qwen3_next.py``, ``models/qwen3_5.py``, ``layers/mamba/gdn/qwen_gdn_linear_attn.py``.
"""

from fitserve.memory.weights.families.dense import tied
from fitserve.memory.weights.families.moe import qwen_experts
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.packed import Awq, Gptq
from fitserve.memory.weights.rotary import add_rotary
from fitserve.memory.weights.shapes import divided

_FLOAT32 = 4


def gated_delta_net(build: Build, name: str, *, interleaved: bool) -> None:
    """One layer's linear attention.

    Args:
        build: the model.
        name: vLLM's name of the layer.
        interleaved: the checkpoint holds query, key, value and gate as one matrix (Qwen3-Next).
    """
    inventory, hidden = build.inventory, build.hidden
    key = build.integer("linear_num_key_heads") * build.integer("linear_key_head_dim")
    value_heads, size = build.integer("linear_num_value_heads"), build.integer("linear_value_head_dim")
    value = value_heads * size
    own_heads = divided(value_heads, inventory.tp, "linear_num_value_heads")
    inventory.numbers(own_heads + size)
    inventory.numbers(own_heads, _FLOAT32)
    kernel, channels = build.integer("linear_conv_kernel_dim"), 2 * key + value
    inventory.numbers(divided(channels, inventory.tp, "the convolution") * kernel)
    inventory.convolution(f"{name}.conv1d", kernel, (channels,))
    parts = (2 * key + 2 * value,) if interleaved else (key, key, value, value)
    shards = ("in_proj_qkvz",) if interleaved else ("in_proj_qkv", "in_proj_z")
    inventory.column(f"{name}.in_proj_qkvz", hidden, parts, shards=shards)
    gates = (2 * value_heads,) if interleaved else (value_heads, value_heads)
    gate_shards = ("in_proj_ba",) if interleaved else ("in_proj_b", "in_proj_a")
    gate_scheme = inventory.quantiser.linear(f"{name}.in_proj_ba", gate_shards)
    whole = not interleaved and (isinstance(gate_scheme, Awq | Gptq))
    inventory.column(f"{name}.in_proj_ba", hidden, gates, shards=gate_shards, whole=whole)
    inventory.row(f"{name}.out_proj", value, hidden)


def gated_attention(build: Build, name: str) -> None:
    """Full attention whose output a gate of the query's size scales."""
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    gate = 2 if build.flag("attn_output_gate", default=True) else 1
    bias = build.flag("attention_bias", "qkv_bias")
    inventory.qkv(f"{name}.qkv_proj", hidden, build.heads * gate, build.kv_heads, size, bias=bias)
    inventory.row(f"{name}.o_proj", build.heads * size, hidden)
    inventory.numbers(2 * size)
    inventory.attention()
    newest = build.at_least("0.32.0")
    add_rotary(inventory, build.text, size, source=build.config.source, mrope_factor=1 if newest else 4)


def qwen_hybrid(
    build: Build, prefix: str = "model", head: str = "lm_head", *, interleaved: bool = False
) -> None:
    """Qwen3-Next and Qwen3.5: three layers with a state to one with attention, dense or routed.

    Every stage holds the embeddings, and of Qwen3-Next the output layer.
    """
    inventory, hidden = build.inventory, build.hidden
    count = build.integer("num_hidden_layers")
    types = build.text.get("layer_types")
    every = build.integer("full_attention_interval", default=4)
    experts = build.integer("num_experts", default=0)

    def full(index: int) -> bool:
        if isinstance(types, list) and index < len(types):
            return bool(types[index] == "full_attention")
        return (index + 1) % every == 0

    def add(index: int) -> None:
        name = f"{prefix}.layers.{index}"
        if full(index):
            gated_attention(build, f"{name}.self_attn")
        else:
            gated_delta_net(build, f"{name}.linear_attn", interleaved=interleaved)
        inventory.numbers(2 * hidden)
        if experts:
            qwen_experts(build, f"{name}.mlp", experts, plain_gate=True)
        else:
            inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))

    everywhere = "embeddings head" if interleaved else "embeddings"
    build.stack(count, add, full)
    build.ends(tied=tied(build, default=False), head=head, everywhere=everywhere)
