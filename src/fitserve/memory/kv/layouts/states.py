"""Models with recurrent states, alone or beside attention.

Source: ``get_mamba_state_shape_from_config`` of vLLM 0.32's models and ``layers/mamba/mamba_utils.py``.
"""

from collections.abc import Callable
from typing import Any

from fitserve.facts.model_config import read_integer
from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError, State
from fitserve.memory.kv.layouts.latent import deepseek_layer


def mamba1(facts: Facts, layer: int, intermediate: int, state: int, kernel: int) -> State:
    """The state of one Mamba 1 layer."""
    width = facts.shard(intermediate, "the Mamba width")
    return State(
        layer=layer, conv_elements=width * (kernel - 1), ssm_elements=width * state, kept_by_block=True
    )


def mamba2(
    facts: Facts,
    layer: int,
    *,
    intermediate: int,
    groups: int,
    heads: int,
    head_size: int,
    state: int,
    kernel: int,
    ssm_dtype: str | None = None,
) -> State:
    """The state of one Mamba 2 layer; groups are replicated where ranks do not divide them."""
    shared = groups if groups % facts.tp == 0 else facts.tp
    conv_width = facts.shard(intermediate + 2 * shared * state, "the Mamba convolution's width")
    return State(
        layer=layer,
        conv_elements=conv_width * (kernel - 1 + facts.options.num_speculative_tokens),
        ssm_elements=facts.shard(heads, "the number of Mamba heads") * head_size * state,
        ssm_dtype=ssm_dtype,
        checkpoint_step=1 if facts.since("0.32.0") else None,
        kept_by_block=True,
    )


def gated_delta_net(facts: Facts, layer: int, ssm_dtype: str | None, *, step: int | None = None) -> State:
    """The state of one gated delta net layer: Qwen 3 Next, Qwen 3.5, OLMo hybrid."""
    key_heads, value_heads = facts.integer("linear_num_key_heads"), facts.integer("linear_num_value_heads")
    key_size, value_size = facts.integer("linear_key_head_dim"), facts.integer("linear_value_head_dim")
    width = facts.shard(2 * key_size * key_heads + value_size * value_heads, "the convolution's width")
    tail = facts.integer("linear_conv_kernel_dim") - 1 + facts.options.num_speculative_tokens
    return State(
        layer=layer,
        conv_elements=width * tail,
        ssm_elements=facts.shard(value_heads, "the number of value heads") * value_size * key_size,
        ssm_dtype=ssm_dtype,
        checkpoint_step=step,
    )


def delta_net_step(facts: Facts) -> int | None:
    """Tokens between the states that FlashInfer's kernel of Qwen's gated delta net gives inside a prompt.

    vLLM chooses that kernel on Hopper, and on Blackwell for keys of 128 elements with CUDA 13, its wheels' own.

    Source: ``layers/mamba/gdn/qwen_gdn_linear_attn.py``, vLLM 0.33.
    """
    major = (facts.options.device.compute_capability or (0, 0))[0]
    taken = major == 9 or (major in (10, 12) and facts.integer("linear_key_head_dim") == 128)
    return 64 if facts.since("0.33.0") and taken else None


def kimi_delta(facts: Facts, layer: int, linear: dict[str, Any]) -> State:
    """The state of one Kimi delta attention layer; its recurrent part is float32.

    Source: ``MambaStateShapeCalculator.kda_state_shape`` and ``models/kimi_k3/nvidia/kda.py``, vLLM 0.28 to 0.33.
    """
    heads = read_integer(linear, ("num_heads",), facts.config.source)
    size = read_integer(linear, ("head_dim",), facts.config.source)
    kernel = read_integer(linear, ("short_conv_kernel_size",), facts.config.source)
    major = (facts.options.device.compute_capability or (0, 0))[0]
    flash = size == 128 and major in (9, 10, 12) and linear.get("gate_lower_bound") is not None
    return State(
        layer=layer,
        conv_elements=facts.shard(3 * heads * size, "the convolution's width")
        * (kernel - 1 + facts.options.num_speculative_tokens),
        ssm_elements=facts.shard(heads, "the number of KDA heads") * size * size,
        ssm_dtype="float32",
        checkpoint_step=16 if flash and facts.since("0.29.0") else None,
    )


def kimi_linear(facts: Facts) -> list[Layer]:
    """Kimi Linear and Kimi K3: delta attention, and latent attention in every fourth layer."""
    linear = facts.part("linear_attn_config")
    states, whole = linear.get("kda_layers"), linear.get("full_attn_layers")
    if not isinstance(states, list) or not isinstance(whole, list):
        raise NotModelledError("Kimi Linear without linear_attn_config")
    if not facts.since("0.28.0"):
        raise NotModelledError("Kimi delta attention before 0.28")
    layers: list[Layer] = []
    for layer in range(facts.layers):
        if layer + 1 in states:
            layers.append(kimi_delta(facts, layer, linear))
        elif layer + 1 in whole:
            layers += deepseek_layer(facts, layer, indexer=False)
        else:
            raise NotModelledError(
                f"layer {layer + 1} of Kimi Linear, which linear_attn_config does not list"
            )
    return layers


def attention(facts: Facts, layer: int, head_size: int | None = None) -> Attention:
    """A layer that keeps every token, beside states."""
    return Attention(layer=layer, kv_heads=facts.kv_heads, head_size=head_size or facts.head_size)


def qwen_hybrid(facts: Facts, *, olmo: bool = False) -> list[Layer]:
    """Qwen 3 Next and Qwen 3.5: three gated delta nets, then one full attention."""
    types = facts.strings("layer_types")
    if not types:
        interval = facts.positive("full_attention_interval", default=4)
        types = [
            "linear_attention" if (layer + 1) % interval else "full_attention"
            for layer in range(facts.layers)
        ]
    named = facts.text.get("mamba_ssm_dtype")
    ssm_dtype = named if isinstance(named, str) else None
    step = None if olmo else delta_net_step(facts)
    return _by_type(
        facts,
        types,
        {
            "linear_attention": lambda layer: [gated_delta_net(facts, layer, ssm_dtype, step=step)],
            "full_attention": lambda layer: [attention(facts, layer)],
        },
    )


def olmo_hybrid(facts: Facts) -> list[Layer]:
    """OLMo hybrid: gated delta nets and full attention, as listed."""
    return qwen_hybrid(facts, olmo=True)


def nemotron_h(facts: Facts) -> list[Layer]:
    """Nemotron H: Mamba 2, attention and feed-forward layers in a pattern; the recurrent state is float32."""
    pattern = facts.text.get("hybrid_override_pattern")
    listed = facts.strings("layers_block_type")
    if isinstance(pattern, str):
        types = [{"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}.get(mark, mark) for mark in pattern]
    elif listed:
        types = listed
    else:
        raise NotModelledError("Nemotron H without hybrid_override_pattern")
    heads, head_size = facts.integer("mamba_num_heads"), facts.integer("mamba_head_dim")
    named = facts.text.get("mamba_ssm_cache_dtype")
    ssm_dtype = named if isinstance(named, str) else "float32" if facts.since("0.11.1") else None

    def state(layer: int) -> list[Layer]:
        return [
            mamba2(
                facts,
                layer,
                intermediate=heads * head_size,
                groups=facts.integer("n_groups"),
                heads=heads,
                head_size=head_size,
                state=facts.integer("ssm_state_size"),
                kernel=facts.integer("conv_kernel"),
                ssm_dtype=ssm_dtype,
            )
        ]

    head = facts.optional("head_dim", "attention_head_dim")
    return _by_type(
        facts,
        types,
        {
            "mamba": state,
            "attention": lambda layer: [attention(facts, layer, head)],
            "mlp": lambda _layer: [],
            "moe": lambda _layer: [],
        },
    )


def _bamba_state(facts: Facts, layer: int, intermediate: int | None = None) -> State:
    """A Mamba 2 state under the names of Bamba, Granite and Falcon H1."""
    width = intermediate or int(_ratio(facts, "mamba_expand") * facts.hidden)
    return mamba2(
        facts,
        layer,
        intermediate=width,
        groups=facts.integer("mamba_n_groups"),
        heads=facts.integer("mamba_n_heads"),
        head_size=_mamba_head(facts, width),
        state=facts.integer("mamba_d_state"),
        kernel=facts.integer("mamba_d_conv"),
    )


def _ratio(facts: Facts, name: str) -> float:
    found = facts.text.get(name, 2)
    if not isinstance(found, int | float) or not 0 < found < 1 << 10:
        raise NotModelledError(f"{name} {found!r} in {facts.config.architecture}")
    return float(found)


def _mamba_head(facts: Facts, width: int) -> int:
    found = facts.text.get("mamba_d_head")
    return found if isinstance(found, int) and found > 0 else width // facts.positive("mamba_n_heads")


def granite_hybrid(facts: Facts) -> list[Layer]:
    """Granite 4: Mamba 2 and attention layers, as listed."""

    def state(layer: int) -> list[Layer]:
        return [_bamba_state(facts, layer)]

    def whole(layer: int) -> list[Layer]:
        return [attention(facts, layer, facts.hidden // facts.heads)]

    return _by_type(
        facts,
        facts.strings("layer_types", "layers_block_type"),
        {
            "mamba": state,
            "linear_attention": state,
            "attention": whole,
            "full_attention": whole,
        },
    )


def bamba(facts: Facts) -> list[Layer]:
    """Bamba: Mamba 2 layers, attention at the listed positions."""
    indices = facts.text.get("attn_layer_indices")
    if not isinstance(indices, list):
        raise NotModelledError("Bamba without attn_layer_indices")
    return [
        attention(facts, layer, facts.hidden // facts.heads)
        if layer in indices
        else _bamba_state(facts, layer)
        for layer in range(facts.layers)
    ]


def zamba2(facts: Facts) -> list[Layer]:
    """Zamba 2: every layer has a Mamba 2 state, the listed ones attention before it."""
    hybrid = facts.text.get("hybrid_layer_ids")
    if not isinstance(hybrid, list):
        raise NotModelledError("Zamba 2 without hybrid_layer_ids")
    layers: list[Layer] = []
    for layer in range(facts.layers):
        if layer in hybrid:
            layers.append(attention(facts, layer, facts.integer("attention_head_dim")))
        layers.append(
            mamba2(
                facts,
                layer,
                intermediate=facts.integer("mamba_expand", default=2) * facts.hidden,
                groups=facts.integer("mamba_ngroups", default=1),
                heads=facts.integer("n_mamba_heads", default=8),
                head_size=facts.integer("mamba_headdim"),
                state=facts.integer("mamba_d_state", default=64),
                kernel=facts.integer("mamba_d_conv", default=4),
            )
        )
    return layers


def falcon_h1(facts: Facts) -> list[Layer]:
    """Falcon H1: every layer has both, a Mamba 2 state and attention."""
    width = facts.optional("mamba_d_ssm")
    layers: list[Layer] = []
    for layer in range(facts.layers):
        layers += [_bamba_state(facts, layer, width), attention(facts, layer)]
    return layers


def jamba(facts: Facts) -> list[Layer]:
    """Jamba: Mamba 1 layers, attention at every ``attn_layer_period``-th."""
    period = facts.positive("attn_layer_period", default=8)
    offset = facts.integer("attn_layer_offset", default=4)
    width = facts.integer("mamba_expand", default=2) * facts.hidden
    state, kernel = facts.integer("mamba_d_state", default=16), facts.integer("mamba_d_conv", default=4)
    return [
        attention(facts, layer, facts.hidden // facts.heads)
        if layer % period == offset
        else mamba1(facts, layer, width, state, kernel)
        for layer in range(facts.layers)
    ]


def mamba(facts: Facts) -> list[Layer]:
    """Mamba and Falcon Mamba: states alone."""
    width = facts.integer("intermediate_size", default=facts.integer("expand", default=2) * facts.hidden)
    state, kernel = facts.integer("state_size", default=16), facts.integer("conv_kernel", default=4)
    return [mamba1(facts, layer, width, state, kernel) for layer in range(facts.layers)]


def mamba2_only(facts: Facts) -> list[Layer]:
    """Mamba 2 and Codestral Mamba: states alone."""
    return [
        mamba2(
            facts,
            layer,
            intermediate=facts.integer("expand", default=2) * facts.hidden,
            groups=facts.integer("n_groups", default=8),
            heads=facts.integer("num_heads", default=128),
            head_size=facts.integer("head_dim", default=64),
            state=facts.integer("state_size", default=128),
            kernel=facts.integer("conv_kernel", default=4),
        )
        for layer in range(facts.layers)
    ]


def lfm2(facts: Facts) -> list[Layer]:
    """LFM 2: short convolutions and full attention, as listed."""
    width = facts.integer("conv_dim", "hidden_size")
    tail = facts.integer("conv_L_cache") - 1

    def state(layer: int) -> list[Layer]:
        return [State(layer=layer, conv_elements=facts.shard(width, "the convolution's width") * tail)]

    return _by_type(
        facts,
        facts.strings("layer_types"),
        {
            "conv": state,
            "full_attention": lambda layer: [attention(facts, layer, facts.hidden // facts.heads)],
        },
    )


def _by_type(facts: Facts, types: list[str], build: dict[str, Callable[[int], list[Layer]]]) -> list[Layer]:
    if not types:
        raise NotModelledError(f"{facts.config.architecture} without a type for every layer")
    layers: list[Layer] = []
    for layer, name in enumerate(types):
        if name not in build:
            raise NotModelledError(f"a layer of type {name} in {facts.config.architecture}")
        layers += build[name](layer)
    return layers
