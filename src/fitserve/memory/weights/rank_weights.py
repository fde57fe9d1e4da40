"""Each rank's weights, from a checkpoint's configuration and, where they are at hand, its headers."""

import re

import msgspec

from fitserve.facts.checkpoint import Checkpoint
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.ranks import RankWeights, config_weights, element_bytes
from fitserve.units import Quantity, Unknown, gib

_AGREES = 0.005
"""Headers and configuration tell the same where they differ by less: padding, and tensors that are not loaded."""

_FURTHEST = 4
"""No format takes less than a quarter of 16 bit without the configuration saying so, and no model has four copies."""

_WIDTHS = ("hidden_size", "n_embd", "d_model", "n_embed", "word_embed_proj_dim")
_PLAIN = ("F16", "BF16", "F32")
_EMBEDDINGS = re.compile(r"(?:(?:model|language_model|transformer|decoder)\.)*(?:embed_tokens|wte)\.weight")

_HALF = 2
"""Bytes of a number in 16 bit: in another dtype the files' bytes do not compare."""

_UNLOADED = ("mtp.", "model.mtp.", "rotary_emb.inv_freq", ".masked_bias", ".attn.bias")


def rank_weights(
    checkpoint: Checkpoint, options: EngineOptions, held: int | None = None
) -> tuple[RankWeights, ...] | Unknown:
    """Bytes of parameters and buffers on every rank: pipeline stages one after the other, ranks within each.

    Computed from the configuration as vLLM builds the model; where all headers are at hand, what they hold confirms the
    result (basis ``read``) or widens it.

    Args:
        checkpoint: the model.
        options: vLLM's settings.
        held: ``loaded_bytes`` of the checkpoint, where it is asked about again and again.

    Returns:
        One entry a rank, or an ``Unknown`` that names the architecture or method that is not modelled.

    Raises:
        InputError: the configuration lacks a number or has an absurd one.
    """
    if checkpoint.format == "gguf":
        from fitserve.memory.weights.gguf import gguf_weights

        return gguf_weights(checkpoint, options)
    found = config_weights(checkpoint.config, options)
    if isinstance(found, Unknown):
        return _with_size(found, checkpoint)
    strange = _other_width(checkpoint)
    if strange is not None:
        return strange
    if not checkpoint.tensors or options.quantization is not None or element_bytes(options) != _HALF:
        return found
    return _confirmed(found, checkpoint, options, loaded_bytes(checkpoint) if held is None else held)


def _with_size(unknown: Unknown, checkpoint: Checkpoint) -> Unknown:
    if checkpoint.size_bytes is None:
        return unknown
    return Unknown(f"{unknown.unknown}; its files hold {gib(checkpoint.size_bytes)} in all")


def _other_width(checkpoint: Checkpoint) -> Unknown | None:
    """Embeddings of another width than the configuration's: the files are another model's.

    Source: ``weight_loader`` in ``layers/vocab_parallel_embedding.py``, vLLM 0.6 to 0.32, copies into a parameter of that width.
    """
    said = (checkpoint.config.text.get(name) for name in _WIDTHS)
    widths = {int(width) for width in said if isinstance(width, int | float)}
    for name, tensor in checkpoint.tensors.items():
        is_plain = tensor.dtype in _PLAIN and len(tensor.shape) == 2
        if is_plain and _EMBEDDINGS.fullmatch(name) and widths and tensor.shape[1] not in widths:
            return Unknown(
                f"{name} in {checkpoint.source} is {tensor.shape[1]:,} wide, {checkpoint.config.source} says "
                f"{' or '.join(f'{width:,}' for width in sorted(widths))}: the files are another model's"
            )
    return None


def _confirmed(
    found: tuple[RankWeights, ...], checkpoint: Checkpoint, options: EngineOptions, held: int
) -> tuple[RankWeights, ...] | Unknown:
    """The same ranks, exact where headers agree, else within an interval that reaches what the headers say."""
    alone = msgspec.structs.replace(
        options,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        enable_expert_parallel=False,
        lora=None,
        drafting=None,
    )
    whole = config_weights(checkpoint.config, alone)
    if isinstance(whole, Unknown) or not held:
        return found
    ratio = held / max(1, whole[0].param_bytes.expected)
    if not 1 / _FURTHEST < ratio < _FURTHEST:
        return Unknown(
            f"the files of {checkpoint.source} hold {gib(held)}, {checkpoint.config.source} amounts to "
            f"{gib(whole[0].param_bytes.expected)}: they are another model's, or some are missing"
        )
    source = f"{checkpoint.source}: headers"
    return tuple(
        msgspec.structs.replace(rank, param_bytes=_judged(rank.param_bytes, ratio, source)) for rank in found
    )


def _judged(size: Quantity, ratio: float, source: str) -> Quantity:
    if abs(ratio - 1) <= _AGREES:
        return Quantity.exact(size.expected, "read", source) if size.low == size.high else size
    other = round(size.expected * ratio)
    return Quantity(
        low=min(size.low, other),
        expected=size.expected,
        high=max(size.high, other),
        basis="estimated",
        source=f"{size.source}; {source} say {ratio:.3f} times as much",
    )


def loaded_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the tensors that vLLM loads, float32 ones in 16 bit as it stores them.

    Draft layers are left out, and the second copy of tied embeddings.
    """
    config = checkpoint.config
    layers = config.text.get("num_hidden_layers")
    tied = config.text.get("tie_word_embeddings", config.data.get("tie_word_embeddings")) is True
    count = layers if isinstance(layers, int) else 1 << 30
    total = 0
    for name, tensor in checkpoint.tensors.items():
        if any(part in name for part in _UNLOADED) or _layer(name) >= count:
            continue
        if tied and name.endswith("lm_head.weight"):
            continue
        wide = tensor.dtype == "F32" and len(tensor.shape) > 1 and "scale" not in name
        total += tensor.size_bytes // 2 if wide else tensor.size_bytes
    return total


def _layer(name: str) -> int:
    """The index of the language model's layer that a tensor belongs to; -1 for none."""
    before, found, after = name.partition("layers.")
    if not found or "vis" in before or "audio" in before or "encoder" in before:
        return -1
    number = after.partition(".")[0]
    return int(number) if number.isdecimal() else -1
