"""Decoders of the Llama kind: attention and a gated network in each layer, with few differences.

Source: vLLM 0.32 ``models/llama.py``, ``qwen2.py``, ``qwen3.py``, ``gemma*.py``, ``granite.py``, ``olmo*.py``,
``internlm2.py``, ``phi3.py``, ``commandr.py``, ``glm4.py``, ``starcoder2.py``.
"""

import msgspec

from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary

_GEMMA2_NORMS = 4


class Dense(msgspec.Struct, frozen=True, kw_only=True):
    """How a decoder differs from Llama.

    Attributes:
        qkv_bias: query, key and value have a bias; None: as ``attention_bias`` says.
        out_bias: so has the output projection; None: like query, key and value.
        mlp_bias: the feed-forward network has biases; None: as ``mlp_bias`` says.
        gated: it is gated.
        qk_norm: norms of query and key: of one head each, or of all heads.
        norms: norms in each layer.
        norm_bias: each norm has a bias.
        tied: what holds where the configuration does not say whether embeddings are tied.
        rotary: positions turn the heads.
        prefix: vLLM's name of the stack.
        head: vLLM's name of the output layer.
    """

    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    gated: bool = True
    qk_norm: str = ""
    norms: int = 2
    norm_bias: bool = False
    tied: bool = False
    rotary: bool = True
    prefix: str = "model"
    head: str = "lm_head"


def tied(build: Build, default: bool) -> bool:
    """Whether the embeddings are tied, with the default of the model's own configuration class."""
    for place in (build.text, build.config.data):
        value = place.get("tie_word_embeddings")
        if isinstance(value, bool):
            return value
    return default


def attention(
    build: Build, how: Dense, name: str, *, layer_type: str | None = None, mrope_factor: int = 4
) -> None:
    """One layer's attention."""
    inventory = build.inventory
    heads, kv_heads, size = build.heads, build.kv_heads, build.head_dim
    bias = build.flag("attention_bias", "bias", "qkv_bias") if how.qkv_bias is None else how.qkv_bias
    out_bias = build.flag("attention_bias", "bias") if how.out_bias is None else how.out_bias
    inventory.qkv(f"{name}.qkv_proj", build.hidden, heads, kv_heads, size, bias=bias)
    inventory.row(f"{name}.o_proj", heads * size, build.hidden, bias=out_bias)
    if how.qk_norm == "head":
        inventory.numbers(2 * size)
    elif how.qk_norm == "all":
        inventory.numbers((heads + kv_heads) * size)
    inventory.attention()
    if how.rotary:
        add_rotary(
            inventory,
            build.text,
            size,
            source=build.config.source,
            layer_type=layer_type,
            mrope_factor=mrope_factor,
        )


def norms(build: Build, how: Dense) -> int:
    """Numbers of one layer's norms."""
    return how.norms * build.hidden * (2 if how.norm_bias else 1)


def dense(build: Build, how: Dense, *, mrope_factor: int = 4) -> None:
    """Count the model."""
    inventory, hidden = build.inventory, build.hidden
    intermediate = build.integer("intermediate_size", "ffn_hidden_size")
    mlp_bias = build.flag("mlp_bias") if how.mlp_bias is None else how.mlp_bias

    def add(index: int) -> None:
        name = f"{how.prefix}.layers.{index}"
        attention(build, how, f"{name}.self_attn", mrope_factor=mrope_factor)
        if how.gated:
            inventory.gated_mlp(f"{name}.mlp", hidden, intermediate, bias=mlp_bias)
        else:
            inventory.column(f"{name}.mlp.up_proj", hidden, intermediate, bias=mlp_bias)
            inventory.row(f"{name}.mlp.down_proj", intermediate, hidden, bias=mlp_bias)
        inventory.numbers(norms(build, how))

    build.stack(build.integer("num_hidden_layers", "n_layer"), add)
    build.ends(norm=hidden * (2 if how.norm_bias else 1), tied=tied(build, how.tied), head=how.head)
