"""The sizes of a model that decide its transient memory."""

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.options import EngineOptions
from fitserve.memory.resolve import is_multimodal

_FLOAT32_BYTES = 4
_HALF_BYTES = 2
_EIGHT_BIT = ("fp8", "w8a8", "int8", "fbgemm_fp8", "modelopt")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a forward pass is made of.

    Attributes:
        layers: hidden layers.
        hidden: the width.
        intermediate: the width of the dense MLP, of the shared experts where every MLP is routed; 0 without either.
        vocabulary: rows of the logits.
        heads: query heads.
        head_size: elements of a head, of the compressed cache under latent attention.
        element_bytes: bytes of a number of the model's dtype.
        is_gated: the MLP has a gate beside its up projection.
        experts_per_token: routed experts that a token visits; 0 without experts.
        expert_intermediate: the width of one expert.
        monolithic_experts: the experts run in one kernel without workspaces (MXFP4).
        eight_bit_activations: activations are quantised to 8 bit on the way.
        multimodal: an encoder stands beside the language model.
        generates: tokens are sampled.
        has_states: layers with a state stand beside attention.
        kv_heads: heads of keys and values.
    """

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    head_size: int
    element_bytes: int
    is_gated: bool
    experts_per_token: int
    expert_intermediate: int
    monolithic_experts: bool
    eight_bit_activations: bool
    multimodal: bool
    generates: bool
    has_states: bool
    kv_heads: int


def shape_of(config: ModelConfig, options: EngineOptions) -> Shape:
    """Read the sizes.

    Raises:
        InputError: the width or the number of layers is missing or absurd.
    """
    integer = config.integer
    hidden = integer("hidden_size", "n_embd", "d_model", "n_embed")
    heads = integer("num_attention_heads", "n_head", "n_heads", default=1)
    experts = integer("num_experts_per_tok", "moe_topk", "top_k_experts", "num_experts_per_token", default=0)
    intermediate = integer("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", default=4 * hidden)
    return Shape(
        layers=integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=1),
        hidden=hidden,
        intermediate=_dense_width(config, intermediate) if experts else intermediate,
        vocabulary=integer("vocab_size", "padded_vocab_size", default=0),
        heads=heads,
        head_size=integer("kv_lora_rank", "head_dim", default=hidden // max(1, heads)),
        element_bytes=_FLOAT32_BYTES if options.dtype in ("float32", "float") else _HALF_BYTES,
        is_gated=_is_gated(config),
        experts_per_token=experts,
        expert_intermediate=integer("moe_intermediate_size", default=intermediate) if experts else 0,
        monolithic_experts=_method(config, options) == "mxfp4",
        eight_bit_activations=_is_eight_bit(config, options),
        multimodal=is_multimodal(config),
        generates="ForCausalLM" in config.architecture
        or "Generation" in config.architecture
        or "LMHead" in config.architecture,
        has_states=_has_states(config),
        kv_heads=integer("num_key_value_heads", "num_kv_heads", default=heads),
    )


def _dense_width(config: ModelConfig, intermediate: int) -> int:
    """The widest MLP that every token passes in a model with experts."""
    integer = config.integer
    shared = integer("shared_expert_intermediate_size", "intermediate_size_mlp", default=0)
    if not shared:
        shared = integer("n_shared_experts", default=0) * integer("moe_intermediate_size", default=0)
    return max(shared, intermediate if integer("first_k_dense_replace", default=0) else 0)


def _is_gated(config: ModelConfig) -> bool:
    act = str(config.text.get("hidden_act") or config.text.get("activation_function") or "silu")
    return act in ("silu", "swiglu") or "gemma" in str(config.data.get("model_type", ""))


def _method(config: ModelConfig, options: EngineOptions) -> str:
    found = config.quantization or {}
    return str(options.quantization or found.get("quant_method") or found.get("quant_algo") or "").lower()


def _is_eight_bit(config: ModelConfig, options: EngineOptions) -> bool:
    """8-bit weights with 8-bit activations, by the method's name or compressed-tensors' description of its inputs."""
    method = _method(config, options)
    if method == "compressed-tensors":
        groups = (config.quantization or {}).get("config_groups")
        parts = groups.values() if isinstance(groups, dict) else []
        return any(
            isinstance(part, dict) and isinstance(part.get("input_activations"), dict) for part in parts
        )
    return any(name in method for name in _EIGHT_BIT)


def _has_states(config: ModelConfig) -> bool:
    names = (
        "mamba_d_state",
        "mamba_num_heads",
        "ssm_state_size",
        "linear_num_value_heads",
        "state_size",
        "hybrid_override_pattern",
    )
    kinds = config.text.get("layer_types")
    return any(config.text.get(name) is not None for name in names) or (
        isinstance(kinds, list) and any("linear" in str(kind) or "mamba" in str(kind) for kind in kinds)
    )
