"""State-space decoders and their mixtures with attention: Mamba, Jamba, Granite 4, Falcon-H1.

Source: vLLM 0.32 ``models/mamba.py``, ``mamba2.py``, ``jamba.py``, ``granitemoehybrid.py``, ``falcon_h1.py``,
``layers/mamba/mamba_mixer.py``.
"""

from fitserve.memory.weights.families.dense import Dense, attention, tied
from fitserve.memory.weights.families.nemotron_h import mamba2
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.shapes import NotModelledError, divided, round_up

_FLOAT32 = 4


def mamba1(
    build: Build,
    name: str,
    *,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    bias: bool,
    conv_bias: bool,
    normed: bool,
) -> None:
    """A Mamba 1 mixer."""
    inventory, hidden = build.inventory, build.hidden
    own = divided(inner, inventory.tp, "the mixer's width")
    inventory.numbers(own * state, _FLOAT32)
    inventory.numbers(own * (1 + kernel + conv_bias))
    inventory.convolution(f"{name}.conv1d", kernel, (inner,))
    inventory.column(f"{name}.in_proj", hidden, (inner, inner), bias=bias)
    inventory.row(f"{name}.x_proj", inner, rank + 2 * state)
    inventory.column(f"{name}.dt_proj", rank, inner, bias=True)
    inventory.row(f"{name}.out_proj", inner, hidden, bias=bias)
    if normed:
        inventory.numbers(rank + 2 * state)


def _time_step_rank(build: Build, *names: str) -> int:
    if all(build.text.get(name) in (None, "auto") for name in names):
        return -(-build.hidden // 16)
    return build.integer(*names)


def mamba(build: Build) -> None:
    """Mamba."""
    inner = build.integer("intermediate_size", default=build.integer("expand", default=2) * build.hidden)

    def add(index: int) -> None:
        mamba1(
            build,
            f"backbone.layers.{index}.mixer",
            inner=inner,
            state=build.integer("state_size"),
            kernel=build.integer("conv_kernel"),
            rank=_time_step_rank(build, "time_step_rank"),
            bias=build.flag("use_bias"),
            conv_bias=build.flag("use_conv_bias", default=True),
            normed=False,
        )
        build.inventory.numbers(build.hidden)

    build.stack(build.integer("num_hidden_layers", "n_layer"), add)
    build.ends(tied=tied(build, default=True), everywhere="norm")


def mamba2_decoder(build: Build) -> None:
    """Mamba 2."""

    def add(index: int) -> None:
        mamba2(
            build,
            f"backbone.layers.{index}.mixer",
            intermediate=build.integer("expand", default=2) * build.hidden,
            heads=build.integer("num_heads"),
            groups=build.integer("n_groups"),
            state=build.integer("state_size"),
            kernel=build.integer("conv_kernel"),
            bias=build.flag("use_bias"),
            conv_bias=build.flag("use_conv_bias", default=True),
            normed=build.flag("rms_norm", default=True),
        )
        build.inventory.numbers(build.hidden)

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=True))


def jamba(build: Build) -> None:
    """Jamba: attention every few layers, experts every few layers."""
    inventory, hidden = build.inventory, build.hidden
    experts = build.integer("num_experts")

    def kind(index: int) -> tuple[bool, bool]:
        attends = index % build.integer("attn_layer_period") == build.integer("attn_layer_offset")
        routed = index % build.integer("expert_layer_period") == build.integer("expert_layer_offset")
        return attends, routed and experts > 1

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attends, routed = kind(index)
        if attends:
            attention(build, Dense(qkv_bias=False, out_bias=False, rotary=False), name)
        else:
            mamba1(
                build,
                f"{name}.mamba",
                inner=build.integer("mamba_expand") * hidden,
                state=build.integer("mamba_d_state"),
                kernel=build.integer("mamba_d_conv"),
                rank=_time_step_rank(build, "mamba_dt_rank"),
                bias=build.flag("mamba_proj_bias"),
                conv_bias=build.flag("mamba_conv_bias", default=True),
                normed=True,
            )
        inventory.numbers(2 * hidden)
        if routed:
            inventory.gate(f"{name}.feed_forward.router", hidden, experts)
            inventory.experts(
                f"{name}.feed_forward.experts", experts, hidden, build.integer("intermediate_size")
            )
        else:
            inventory.gated_mlp(f"{name}.feed_forward", hidden, build.integer("intermediate_size"))

    build.stack(build.integer("num_hidden_layers"), add, kind)
    build.ends(tied=tied(build, default=False), everywhere="embeddings norm head")


def _mamba2_of(build: Build, name: str, *, intermediate: int, normed: bool = True) -> None:
    mamba2(
        build,
        name,
        intermediate=intermediate,
        heads=build.integer("mamba_n_heads"),
        groups=build.integer("mamba_n_groups"),
        state=build.integer("mamba_d_state"),
        kernel=build.integer("mamba_d_conv"),
        bias=build.flag("mamba_proj_bias"),
        conv_bias=build.flag("mamba_conv_bias", default=True),
        normed=normed,
    )


def granite_hybrid(build: Build) -> None:
    """Granite 4: Mamba 2 and attention, with experts and a shared network."""
    inventory, hidden = build.inventory, build.hidden
    types = build.text.get("layer_types") or build.text.get("layers_block_type")
    if not isinstance(types, list):
        raise NotModelledError("Granite 4 without layer_types")
    experts, shared = (
        build.integer("num_local_experts", default=0),
        build.integer("shared_intermediate_size", default=0),
    )
    turns = build.text.get("position_embedding_type") == "rope"

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        if types[index] == "attention":
            attention(build, Dense(rotary=turns), f"{name}.self_attn")
        else:
            _mamba2_of(build, f"{name}.mamba", intermediate=build.integer("mamba_expand") * hidden)
        inventory.numbers(2 * hidden)
        granite_experts(build, name, experts, shared)

    build.stack(build.integer("num_hidden_layers"), add, lambda index: types[index])
    build.ends(tied=tied(build, default=False), everywhere="norm")


def granite_experts(build: Build, name: str, experts: int, shared: int) -> None:
    """Experts, and a network that every token passes."""
    inventory, hidden = build.inventory, build.hidden
    if experts:
        inventory.gate(f"{name}.block_sparse_moe.gate", hidden, experts)
        inventory.experts(
            f"{name}.block_sparse_moe.experts", experts, hidden, build.integer("intermediate_size")
        )
    if shared:
        inventory.column(f"{name}.shared_mlp.input_linear", hidden, (shared, shared))
        inventory.row(f"{name}.shared_mlp.output_linear", shared, hidden)


def falcon_h1(build: Build) -> None:
    """Falcon-H1: Mamba 2 and attention side by side in every layer."""
    inventory, hidden = build.inventory, build.hidden
    inner = build.integer("mamba_d_ssm", default=build.integer("mamba_expand") * hidden)
    groups, state = build.integer("mamba_n_groups"), build.integer("mamba_d_state")
    rows = 2 * inner + 2 * groups * state + build.integer("mamba_n_heads")

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        attention(build, Dense(), f"{name}.self_attn")
        _mamba2_of(build, f"{name}.mamba.mamba", intermediate=inner, normed=build.flag("mamba_rms_norm"))
        inventory.buffers += rows // inventory.tp * inventory.element
        inventory.numbers(2 * hidden)
        inventory.gated_mlp(
            f"{name}.feed_forward", hidden, build.integer("intermediate_size"), bias=build.flag("mlp_bias")
        )

    build.stack(build.integer("num_hidden_layers"), add)
    build.ends(tied=tied(build, default=False))


def lfm2(build: Build) -> None:
    """LFM 2: short convolutions and attention with norms of query and key.

    Source: vLLM 0.32 ``models/lfm2.py``, ``layers/mamba/short_conv.py``.
    """
    inventory, hidden = build.inventory, build.hidden
    types = build.text.get("layer_types")
    if not isinstance(types, list):
        raise NotModelledError("LFM 2 without layer_types")
    width, kernel = build.integer("conv_dim", default=hidden), build.integer("conv_L_cache")
    bias, inner = build.flag("conv_bias"), _lfm2_width(build)

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        if types[index] == "full_attention":
            attention(build, Dense(qkv_bias=False, out_bias=False, qk_norm="head"), f"{name}.self_attn")
        else:
            inventory.numbers(divided(width, inventory.tp, "the convolution") * (kernel + bias))
            inventory.convolution(f"{name}.short_conv.conv", kernel, (width,))
            inventory.column(f"{name}.short_conv.in_proj", hidden, (width, width, width), bias=bias)
            inventory.row(f"{name}.short_conv.out_proj", width, hidden, bias=bias)
        inventory.gated_mlp(f"{name}.feed_forward", hidden, inner)
        inventory.numbers(2 * hidden)

    build.stack(build.integer("num_hidden_layers"), add, lambda index: str(types[index]))
    tie = build.flag("tie_embedding", "tie_word_embeddings", default=True)
    build.ends(tied=tie)


def _lfm2_width(build: Build) -> int:
    """The network's width: two thirds of what is given, in whole multiples, where it says so."""
    given = build.integer("block_ff_dim", "intermediate_size")
    if not build.flag("block_auto_adjust_ff_dim", default=True):
        return given
    factor, step = (
        build.text.get("block_ffn_dim_multiplier", 1.0),
        build.integer("block_multiple_of", default=256),
    )
    if factor is not None and not (isinstance(factor, int | float) and 0 < factor < 1 << 16):
        raise NotModelledError("LFM 2 without a usable block_ffn_dim_multiplier")
    return round_up(int((1 if factor is None else factor) * int(2 * given / 3)), max(1, step))
