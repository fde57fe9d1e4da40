"""Decoders before Llama: layer norms with biases, networks without gates, learned or relative positions.

Source: vLLM 0.32 ``models/opt.py``, ``gpt2.py``, ``gpt_j.py``, ``gpt_neox.py``, ``gpt_bigcode.py``, ``falcon.py``, ``bloom.py``; 0.28
``mpt.py``.
"""

from fitserve.memory.weights.families.dense import tied
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_frequencies, add_rotary
from fitserve.memory.weights.shapes import NotModelledError


def opt(build: Build) -> None:
    """OPT: learned positions with two rows more, and narrower embeddings in one size."""
    inventory, hidden = build.inventory, build.hidden
    bias, width = (
        build.flag("enable_bias", default=True),
        build.integer("word_embed_proj_dim", default=build.hidden),
    )
    inner = build.integer("ffn_dim")

    def add(index: int) -> None:
        name = f"model.decoder.layers.{index}"
        inventory.qkv(
            f"{name}.self_attn.qkv_proj", hidden, build.heads, build.heads, build.head_dim, bias=bias
        )
        inventory.row(f"{name}.self_attn.out_proj", hidden, hidden, bias=bias)
        inventory.column(f"{name}.fc1", hidden, inner, bias=bias)
        inventory.row(f"{name}.fc2", inner, hidden, bias=bias)
        inventory.numbers(4 * hidden)
        inventory.attention()

    inventory.numbers((build.integer("max_position_embeddings") + 2) * hidden)
    if width != hidden:
        inventory.column("model.decoder.project_in", width, hidden, whole=True)
        inventory.column("model.decoder.project_out", hidden, width, whole=True)
    normed = build.flag("do_layer_norm_before", default=True) and not build.flag("_remove_final_layer_norm")
    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(
        norm=2 * hidden if normed else 0, tied=tied(build, default=True), width=width, everywhere="norm"
    )


def _gpt_layer(build: Build, name: str, inner: int, kv_heads: int, *, whole_network: bool = False) -> None:
    inventory, hidden = build.inventory, build.hidden
    inventory.qkv(f"{name}.attn.c_attn", hidden, build.heads, kv_heads, build.head_dim, bias=True, shards=())
    inventory.row(f"{name}.attn.c_proj", hidden, hidden, bias=True)
    inventory.column(f"{name}.mlp.c_fc", hidden, inner, bias=True, whole=whole_network)
    inventory.row(f"{name}.mlp.c_proj", inner, hidden, bias=True, whole=whole_network)
    inventory.numbers(4 * hidden)
    inventory.attention()


def gpt2(build: Build) -> None:
    """GPT-2."""
    hidden = build.hidden
    inner = build.integer("n_inner", default=4 * hidden)
    build.inventory.numbers(build.integer("n_positions", "max_position_embeddings") * hidden)
    build.stack(
        build.integer("n_layer"),
        lambda index: _gpt_layer(build, f"transformer.h.{index}", inner, build.heads),
    )
    build.ends(norm=2 * hidden, tied=tied(build, default=True), everywhere="norm")


def gpt_bigcode(build: Build) -> None:
    """StarCoder and SantaCoder: one key and value head.

    Since 0.32 vLLM runs them through Transformers: a mask stays, and every rank holds the whole network.
    """
    hidden, positions = build.hidden, build.integer("n_positions", "max_position_embeddings")
    inner = build.integer("n_inner", default=4 * hidden)
    kv_heads = 1 if build.flag("multi_query", default=True) else build.heads
    newer = build.at_least("0.32.0")
    build.inventory.numbers(positions * hidden)
    if newer:
        build.inventory.buffers += positions**2

    def add(index: int) -> None:
        _gpt_layer(build, f"model.h.{index}", inner, kv_heads, whole_network=newer)

    build.stack(build.integer("n_layer"), add)
    build.ends(norm=2 * hidden, tied=tied(build, default=True))


def gpt_j(build: Build) -> None:
    """GPT-J: one norm a layer, and a bias of the output layer."""
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    inner = build.integer("n_inner", default=4 * hidden)
    columns = build.integer("rotary_dim", default=size)

    def add(index: int) -> None:
        name = f"transformer.h.{index}"
        inventory.qkv(f"{name}.attn.qkv_proj", hidden, build.heads, build.heads, size)
        inventory.row(f"{name}.attn.out_proj", hidden, hidden)
        inventory.column(f"{name}.mlp.fc_in", hidden, inner, bias=True)
        inventory.row(f"{name}.mlp.fc_out", inner, hidden, bias=True)
        inventory.numbers(2 * hidden)
        inventory.attention()
        positions = build.integer("n_positions", "max_position_embeddings")
        add_rotary(
            inventory, build.text, size, source=build.config.source, columns=columns, max_position=positions
        )

    build.stack(build.integer("n_layer"), add)
    build.ends(norm=2 * hidden, tied=False, head_bias=True, everywhere="embeddings norm head")


def gpt_neox(build: Build) -> None:
    """GPT-NeoX and Pythia."""
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    bias, inner = build.flag("attention_bias", default=True), build.integer("intermediate_size")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        inventory.qkv(
            f"{name}.attention.query_key_value", hidden, build.heads, build.heads, size, bias=bias, shards=()
        )
        inventory.row(f"{name}.attention.dense", hidden, hidden, bias=bias)
        inventory.column(f"{name}.mlp.dense_h_to_4h", hidden, inner, bias=True)
        inventory.row(f"{name}.mlp.dense_4h_to_h", inner, hidden, bias=True)
        inventory.numbers(4 * hidden)
        inventory.attention()
        add_frequencies(build, size)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(norm=2 * hidden, tied=tied(build, default=False))


def falcon(build: Build) -> None:
    """Falcon: one key and value head, or few in the newer design."""
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    newer, bias = build.flag("new_decoder_architecture"), build.flag("bias")
    if newer:
        kv_heads = build.integer("num_kv_heads", default=heads)
    else:
        kv_heads = 1 if build.flag("multi_query", default=True) else heads
    inner = build.integer("ffn_hidden_size", default=4 * hidden)
    parallel = build.flag("parallel_attn", default=True)
    one = build.text.get("num_ln_in_parallel_attn") == 1 if newer else parallel

    def add(index: int) -> None:
        name = f"transformer.h.{index}"
        inventory.qkv(
            f"{name}.self_attention.query_key_value",
            hidden,
            heads,
            kv_heads,
            hidden // heads,
            bias=bias,
            shards=(),
        )
        inventory.row(f"{name}.self_attention.dense", hidden, hidden, bias=bias)
        inventory.column(f"{name}.mlp.dense_h_to_4h", hidden, inner, bias=bias)
        inventory.row(f"{name}.mlp.dense_4h_to_h", inner, hidden, bias=bias)
        inventory.numbers(2 * hidden if one else 4 * hidden)
        inventory.attention()
        if not build.flag("alibi"):
            add_rotary(
                inventory, build.text, hidden // heads, source=build.config.source, default_position=2048
            )

    build.stack(build.integer("num_hidden_layers", "n_layer"), add)
    build.ends(norm=2 * hidden, tied=tied(build, default=True), everywhere="norm")


def bloom(build: Build) -> None:
    """BLOOM: a norm behind the embeddings."""
    inventory, hidden = build.inventory, build.hidden

    def add(index: int) -> None:
        name = f"transformer.h.{index}"
        inventory.qkv(
            f"{name}.self_attention.query_key_value",
            hidden,
            build.heads,
            build.heads,
            build.head_dim,
            bias=True,
            shards=(),
        )
        inventory.row(f"{name}.self_attention.dense", hidden, hidden, bias=True)
        inventory.column(f"{name}.mlp.dense_h_to_4h", hidden, 4 * hidden, bias=True)
        inventory.row(f"{name}.mlp.dense_4h_to_h", 4 * hidden, hidden, bias=True)
        inventory.numbers(4 * hidden)
        inventory.attention()

    inventory.numbers(2 * hidden)
    build.stack(build.integer("n_layer", "num_hidden_layers"), add)
    build.ends(norm=2 * hidden, tied=tied(build, default=True))


def mpt(build: Build) -> None:
    """MPT with relative positions and no biases, as vLLM had it until 0.28.

    Raises:
        NotModelledError: another kind of MPT.
    """
    inventory, hidden = build.inventory, build.hidden
    settings = build.text.get("attn_config")
    attention = settings if isinstance(settings, dict) else {}
    plain = build.flag("no_bias") and attention.get("alibi") is True and not attention.get("qk_ln")
    if not plain or attention.get("attn_type", "multihead_attention") != "multihead_attention":
        raise NotModelledError("MPT with biases, learned positions or norms of query and key")
    inner = hidden * build.integer("expansion_ratio", default=4)

    def add(index: int) -> None:
        name = f"transformer.blocks.{index}"
        inventory.qkv(f"{name}.attn.Wqkv", hidden, build.heads, build.heads, hidden // build.heads, shards=())
        inventory.row(f"{name}.attn.out_proj", hidden, hidden)
        inventory.column(f"{name}.ffn.up_proj", hidden, inner)
        inventory.row(f"{name}.ffn.down_proj", inner, hidden)
        inventory.numbers(2 * hidden)
        inventory.attention()

    build.stack(build.integer("n_layers"), add)
    build.ends(norm=hidden, tied=True)


def chatglm(build: Build) -> None:
    """ChatGLM 2 and 3, GLM-4 in its own layout: half of a head turns, the output layer is its own.

    Source: vLLM 0.32 ``models/chatglm.py``.
    """
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    size, bias = hidden // max(1, heads), build.flag("add_bias_linear")
    few = build.flag("multi_query_attention")
    kv_heads = build.integer("multi_query_group_num") if few else heads
    inner = build.integer("ffn_hidden_size")

    def add(index: int) -> None:
        name = f"transformer.encoder.layers.{index}"
        qkv_bias = bias or build.flag("add_qkv_bias")
        attend = f"{name}.self_attention"
        inventory.qkv(f"{attend}.query_key_value", hidden, heads, kv_heads, size, bias=qkv_bias, shards=())
        inventory.row(f"{attend}.dense", heads * size, hidden, bias=bias)
        inventory.column(f"{name}.mlp.dense_h_to_4h", hidden, (inner, inner), bias=bias)
        inventory.row(f"{name}.mlp.dense_4h_to_h", inner, hidden, bias=bias)
        inventory.numbers(2 * hidden)
        inventory.attention()
        positions = build.integer("seq_length", default=8192)
        add_rotary(
            inventory,
            build.text,
            size,
            source=build.config.source,
            columns=size // 2,
            max_position=positions,
        )

    if not build.flag("rmsnorm", default=True):
        raise NotModelledError("ChatGLM with layer norms")
    build.stack(build.integer("num_layers"), add)
    build.ends(head="transformer.output_layer", tied=False, everywhere="embeddings norm head")
