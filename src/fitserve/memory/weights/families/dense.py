"""Decoders of the Llama kind: attention and a gated network in each layer, with few differences.

Source: vLLM 0.32 ``models/llama.py``, ``qwen2.py``, ``qwen3.py``, ``gemma*.py``, ``granite.py``, ``olmo*.py``,
``internlm2.py``, ``phi3.py``, ``commandr.py``, ``glm4.py``, ``starcoder2.py``.
"""

import msgspec

from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_frequencies, add_rotary
from fitserve.memory.weights.shapes import kv_heads_on_rank

_GEMMA2_NORMS = 4


class Dense(msgspec.Struct, frozen=True, kw_only=True):
    """How a decoder differs from Llama.

    Attributes:
        qkv_bias: query, key and value have a bias; None: as ``attention_bias`` says.
        out_bias: so has the output projection; None: like query, key and value.
        mlp_bias: the feed-forward network has biases; None: as ``mlp_bias`` says.
        gated: it is gated.
        qk_norm: norms of query and key: over a ``head``, over ``all`` heads on each rank, or over its ``own``.
        norms: norms in each layer.
        norm_bias: each norm has a bias.
        last_norm: there is a norm with weights behind the layers.
        tied: what holds where the configuration does not say whether embeddings are tied.
        rotary: positions turn the heads.
        through_transformers: vLLM runs the model through Transformers since 0.32, which keeps frequencies, no cache.
        prefix: vLLM's name of the stack.
        head: vLLM's name of the output layer.
        everywhere: what every pipeline stage holds, of ``embeddings norm head``.
        classes: a classifier in float32 stands in the output layer's place.
    """

    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    gated: bool = True
    qk_norm: str = ""
    norms: int = 2
    norm_bias: bool = False
    last_norm: bool = True
    tied: bool = False
    rotary: bool = True
    through_transformers: bool = False
    prefix: str = "model"
    head: str = "lm_head"
    everywhere: str = ""
    classes: bool = False


def class_count(build: Build) -> int:
    """How many classes a classifier tells apart; transformers' default is 2."""
    labels = build.config.data.get("id2label")
    known = len(labels) if isinstance(labels, dict) and labels else 2
    return build.of(build.config.data, "num_labels", default=known)


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
    elif how.qk_norm == "own":
        inventory.numbers((heads // inventory.tp + kv_heads_on_rank(kv_heads, inventory.tp)) * size)
    inventory.attention()
    if how.through_transformers:
        add_frequencies(build, size)
    elif how.rotary:
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
    last = hidden * (2 if how.norm_bias else 1) if how.last_norm else 0
    if how.classes:
        inventory.numbers(class_count(build) * hidden, 4)
    build.ends(
        norm=last, tied=tied(build, how.tied), headless=how.classes, head=how.head, everywhere=how.everywhere
    )


def stablelm(build: Build) -> None:
    """StableLM: layer norms, and biases of query, key and value where it says so."""
    dense(
        build,
        Dense(
            qkv_bias=build.flag("use_qkv_bias"),
            out_bias=False,
            mlp_bias=False,
            norm_bias=True,
            everywhere="embeddings norm head",
        ),
    )


def starcoder2(build: Build) -> None:
    """StarCoder 2: no gate, and biases everywhere where it says so."""
    bias = build.flag("use_bias", default=True)
    how = Dense(qkv_bias=bias, out_bias=bias, mlp_bias=bias, gated=False, norm_bias=True, tied=True)
    dense(build, msgspec.structs.replace(how, through_transformers=True))


def cohere(build: Build) -> None:
    """Command R: one norm a layer, always tied."""
    qk_norm = "own" if build.flag("use_qk_norm") else ""
    dense(build, Dense(out_bias=None, mlp_bias=False, norms=1, qk_norm=qk_norm, tied=True, everywhere="norm"))


def olmo3(build: Build) -> None:
    """OLMo 3: frequencies for each kind of layers."""
    dense(build, Dense(mlp_bias=False, qk_norm="all", through_transformers=True))
    if build.at_least("0.32.0"):
        build.inventory.rotary("frequencies of windowed layers", 2 * (build.head_dim // 2) * 4)


def seed_oss(build: Build) -> None:
    """Seed-OSS: the output projection's bias has a setting of its own."""
    out_bias = build.flag("attention_out_bias")
    dense(build, Dense(out_bias=out_bias, through_transformers=True))


def ernie45(build: Build) -> None:
    """ERNIE 4.5 without experts."""
    bias = build.flag("use_bias")
    dense(build, Dense(qkv_bias=bias, out_bias=bias, mlp_bias=bias, tied=True))
