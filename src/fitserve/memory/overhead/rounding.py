"""What loading takes beyond the weights themselves: tails of blocks, and copies.

A tensor of 10 MiB or more takes a block of its own, in whole 2 MiB; the tail is given back where it is above 1 MiB. Latent
attention in FP8 keeps its up-projections a second time, in the model's type.

Source: ``c10/cuda/CUDACachingAllocator.cpp`` of torch 2.9; on 14 measured starts the sum is right to 0.004 GiB on average.
``split_kv_b_proj`` in ``layers/attention/mla_attention.py`` of vLLM 0.32 (``mla/common.py`` from 0.8 on).
"""

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.shape import Shape
from fitserve.units import MIB, Quantity

_OWN_BLOCK = 10 * MIB
_UNIT = 2 * MIB
_SPLIT_ABOVE = 1 * MIB
_UNEXPLAINED_MIB = 160
_UNEXPLAINED_ENCODER_MIB = 640
_UNEXPLAINED_LATENT_MIB = 1280


def tails(config: ModelConfig, shape: Shape, options: EngineOptions) -> Quantity:
    """Tails and copies, and above them what has stayed unexplained.

    That is 0.02 GiB on 70 starts of plain models; with a vision encoder 0.35 and 0.64 on two of eight; with latent attention 0.15
    where nothing is quantised, 0.78 and 1.23 on two starts of quantised models.
    """
    known = rounding_bytes(config, shape, options)
    unexplained = _UNEXPLAINED_ENCODER_MIB if shape.multimodal else _UNEXPLAINED_MIB
    if is_latent(config) and (config.quantization is not None or options.quantization):
        unexplained = _UNEXPLAINED_LATENT_MIB
    return Quantity(
        low=known,
        expected=known,
        high=known + unexplained * MIB,
        basis="estimated",
        source="blocks of 2 MiB, as torch's allocator hands them out",
    )


def rounding_bytes(config: ModelConfig, shape: Shape, options: EngineOptions) -> int:
    """The tails of one rank's layers; 0 for models whose weights are quantised, routed, or not a plain stack."""
    if is_latent(config):
        return _absorbed_bytes(config, shape, options)
    if config.quantization is not None or options.quantization or shape.experts_per_token or shape.has_states:
        return 0
    tp = options.tensor_parallel_size
    heads = shape.heads // tp
    kv_heads = max(1, shape.kv_heads // tp)
    width = shape.intermediate // tp
    rows = (
        (heads + 2 * kv_heads) * shape.head_size,
        heads * shape.head_size,
        2 * width if shape.is_gated else width,
        width,
    )
    layers = shape.layers // options.pipeline_parallel_size
    return layers * sum(tail(count * shape.hidden * shape.element_bytes) for count in rows)


def is_latent(config: ModelConfig) -> bool:
    """True for latent attention."""
    return config.text.get("kv_lora_rank") is not None


def tail(size_bytes: int) -> int:
    """What a tensor's block is larger than the tensor."""
    rest = -size_bytes % _UNIT
    return rest if size_bytes >= _OWN_BLOCK and rest <= _SPLIT_ABOVE else 0


def _absorbed_bytes(config: ModelConfig, shape: Shape, options: EngineOptions) -> int:
    """The up-projections' copies; where they are not quantised they are views."""
    method = str((config.quantization or {}).get("quant_method") or options.quantization or "").lower()
    if method != "fp8":
        return 0
    sizes = config.integer("qk_nope_head_dim", default=0) + config.integer("v_head_dim", default=0)
    heads = shape.heads // options.tensor_parallel_size
    layers = shape.layers // options.pipeline_parallel_size
    return layers * heads * sizes * config.integer("kv_lora_rank") * shape.element_bytes
