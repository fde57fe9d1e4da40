"""Nemotron-H: each layer is a state-space mixer, attention, a network or experts, as a pattern says.

Source: vLLM 0.32 ``models/nemotron_h.py``, ``layers/mamba/mamba_mixer2.py``.
"""

from fitserve.memory.weights.model import Build
from fitserve.memory.weights.shapes import NotModelledError, divided

_FLOAT32 = 4
_KINDS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def mamba2(
    build: Build,
    name: str,
    *,
    intermediate: int,
    heads: int,
    groups: int,
    state: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    normed: bool = True,
) -> None:
    """A Mamba 2 mixer: groups repeat where ranks outnumber the only one."""
    inventory, tp = build.inventory, build.inventory.tp
    whole_groups = groups
    if groups % tp:
        if groups != 1:
            raise NotModelledError(f"n_groups {groups} is not divisible by tensor_parallel_size {tp}")
        whole_groups = tp
    own_heads = divided(heads, tp, "mamba heads")
    states = whole_groups * state
    channels = divided(intermediate + 2 * states, tp, "the convolution")
    parts = (intermediate, intermediate, states, states, heads)
    inventory.numbers(own_heads, _FLOAT32)
    inventory.numbers(2 * own_heads + channels * (kernel + conv_bias))
    inventory.buffers += channels * kernel * inventory.element
    if groups % tp == 0:
        inventory.convolution(f"{name}.conv1d", kernel, (intermediate, states, states))
        inventory.column(f"{name}.in_proj", build.hidden, parts, bias=bias)
    else:
        inventory.convolution(f"{name}.conv1d", kernel, (intermediate + 2 * states,))
        inventory.column(f"{name}.in_proj", build.hidden, sum(parts), bias=bias)
    inventory.row(f"{name}.out_proj", intermediate, build.hidden, bias=bias)
    if normed:
        inventory.numbers(divided(intermediate, tp, "the mixer"))


def _mixer(build: Build, name: str) -> None:
    heads = build.integer("mamba_num_heads")
    mamba2(
        build,
        name,
        intermediate=heads * build.integer("mamba_head_dim"),
        heads=heads,
        groups=build.integer("n_groups"),
        state=build.integer("ssm_state_size"),
        kernel=build.integer("conv_kernel"),
        bias=build.flag("use_bias"),
        conv_bias=build.flag("use_conv_bias", default=True),
    )


def _attention(build: Build, name: str) -> None:
    inventory, size = build.inventory, build.head_dim
    inventory.qkv(
        f"{name}.qkv_proj", build.hidden, build.heads, build.kv_heads, size, bias=build.flag("attention_bias")
    )
    inventory.row(f"{name}.o_proj", build.heads * size, build.hidden, bias=build.flag("attention_bias"))
    inventory.attention()


def _network(build: Build, name: str, intermediate: int) -> None:
    bias = build.flag("mlp_bias")
    build.inventory.column(f"{name}.up_proj", build.hidden, intermediate, bias=bias)
    build.inventory.row(f"{name}.down_proj", intermediate, build.hidden, bias=bias)


def _experts(build: Build, name: str) -> None:
    inventory, hidden = build.inventory, build.hidden
    experts, latent = build.integer("n_routed_experts"), build.integer("moe_latent_size", default=0)
    # What routes takes no adapters here: its experts have no gate. Source: ``_create_lora_modules`` of vLLM 0.32.
    inventory.numbers(experts * hidden)
    inventory.numbers(experts, _FLOAT32)
    shared = build.integer("n_shared_experts", default=0)
    if shared:
        _network(
            build, f"{name}.shared_experts", shared * build.integer("moe_shared_expert_intermediate_size")
        )
    if latent:
        bias = build.flag("mlp_bias")
        inventory.column(f"{name}.fc1_latent_proj", hidden, latent, bias=bias, whole=True)
        inventory.column(f"{name}.fc2_latent_proj", latent, hidden, bias=bias, whole=True)
    width = latent or hidden
    inventory.experts(
        f"{name}.experts", experts, width, build.integer("moe_intermediate_size"), projections=1
    )


def nemotron_h(build: Build) -> None:
    """Count the model."""
    pattern = build.text.get("hybrid_override_pattern")
    types = build.text.get("layers_block_type")
    if not isinstance(pattern, str) and isinstance(types, list):
        pattern = "".join(_KINDS.get(str(kind), "?") for kind in types)
    if not isinstance(pattern, str):
        raise NotModelledError("Nemotron-H without hybrid_override_pattern")
    network = build.text.get("intermediate_size")
    sizes = network if isinstance(network, list) else [network]
    networks = [index for index, kind in enumerate(pattern) if kind == "-"]

    def size(index: int) -> int:
        found = sizes[networks.index(index)] if len(sizes) > 1 else sizes[0]
        if not isinstance(found, int):
            raise NotModelledError("Nemotron-H without intermediate_size")
        return found

    def add(index: int) -> None:
        name = f"model.layers.{index}.mixer"
        match pattern[index]:
            case "M":
                _mixer(build, name)
            case "*":
                _attention(build, name)
            case "-":
                _network(build, name, size(index))
            case "E":
                _experts(build, name)
            case other:
                raise NotModelledError(f"a Nemotron-H layer of kind {other!r}")
        build.inventory.numbers(build.hidden)

    build.stack(len(pattern), add, lambda index: (pattern[index], pattern[index] == "-" and size(index)))
    build.ends(everywhere="embeddings norm head")
