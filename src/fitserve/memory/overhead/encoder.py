"""The encoder's pass of the profile run: a batch of the largest images that the encoder's budget holds, before the language model's.

    budget  = max(T, tokens of the largest image)        tokens that one step may encode
    patches = budget x patches a token stands for, divided over the ranks where they share out items
    pass    = patches x (e (2 h + g m / tp) or e (2 h + 5 h / tp), whichever is more, + 4 pixels)
    kept    = budget x H e                               outputs, while the language model runs

T = max_num_batched_tokens, h and m the encoder's width and MLP width, g = 3 where that is gated and 2 where it is not, H the language
model's width, e bytes of the dtype.
The peak of the profile run is the larger of this pass and the language model's with the outputs kept.

The largest image is not written in ``config.json``: it is the processor's, known here for a few architectures and from
``--mm-processor-kwargs``; else it is taken to fit into a step. Source: ``profile_run`` in ``v1/worker/gpu_model_runner.py``,
``multimodal/encoder_budget.py`` and ``models/qwen2_5_vl.py``, ``siglip.py``, ``pixtral.py`` of vLLM 0.32. Two starts of a fork with
Qwen3's encoder, at 4,096 and 8,192 tokens of images, differ by 0.43 GiB where this says 0.47; three others lie below the language
model's peak, as they do here. None checks the pass alone, so its interval is wide: 0.6 to 2 times of it, 0.3 where the largest image
is not known.
"""

from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig, read_integer
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.shape import Shape
from fitserve.units import GIB, Quantity

_HIDDEN = ("embed_dim", "hidden_size", "width")
_QWEN_PIXELS = {
    "Qwen2VLForConditionalGeneration": 12_845_056,
    "Qwen2_5_VLForConditionalGeneration": 12_845_056,
    "Qwen3VLForConditionalGeneration": 16_777_216,
    "Qwen3VLMoeForConditionalGeneration": 16_777_216,
    "Qwen3_5ForConditionalGeneration": 16_777_216,
    "Qwen3_5MoeForConditionalGeneration": 16_777_216,
}
"""The largest image of the published processors: ``max_pixels`` or ``size.longest_edge`` of ``preprocessor_config.json``."""

_UNKNOWN_ENCODER = 4 * GIB
_LEAST, _LEAST_UNKNOWN, _MOST = 0.6, 0.3, 2
_PIXEL_BYTES = 4
_COLOURS = 3


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of an image encoder.

    Attributes:
        hidden: its width.
        intermediate: the width of its MLP.
        patch: pixels along a patch.
        patches_per_token: patches that one token of the language model stands for.
        frames: frames that one patch spans.
        is_gated: its MLP has a gate.
        image_tokens: tokens of the largest image; None where that is not known.
    """

    hidden: int
    intermediate: int
    patch: int
    patches_per_token: int
    frames: int = 1
    is_gated: bool = False
    image_tokens: int | None = None


def encoder_of(config: ModelConfig, options: EngineOptions) -> Encoder | None:
    """The image encoder of a model; None where its sizes are not written as they are elsewhere."""
    part = next(
        (config.data[name] for name in ("vision_config", "visual", "vit_config") if _is(config, name)), None
    )
    if part is None:
        return None

    def whole(*names: str, default: int = 0) -> int:
        return read_integer(part, names, config.source, default)

    try:
        hidden, patch = whole(*_HIDDEN), whole("patch_size", "spatial_patch_size")
        intermediate = whole("intermediate_size", "mlp_dim") or 4 * hidden
        ratio = _ratio(config, part, whole("image_size"), patch)
        frames = whole("temporal_patch_size", default=1)
    except InputError:
        return None
    if not hidden or not patch:
        return None
    pixels = options.encoder.most_pixels or _QWEN_PIXELS.get(config.architecture)
    tokens = pixels // (patch * patch * ratio) if pixels else None
    return Encoder(
        hidden=hidden,
        intermediate=intermediate,
        patch=patch,
        patches_per_token=ratio,
        frames=frames,
        is_gated=_is_gated(config, part),
        image_tokens=tokens,
    )


def _is_gated(config: ModelConfig, part: dict[str, Any]) -> bool:
    """By its activation; where that is not named, by the model's default."""
    act = part.get("hidden_act")
    return act in ("silu", "swiglu") or (act is None and "2_5_VL" in config.architecture)


def _is(config: ModelConfig, name: str) -> bool:
    return isinstance(config.data.get(name), dict)


def _ratio(config: ModelConfig, part: dict[str, Any], image: int, patch: int) -> int:
    """Patches that one token stands for."""
    data = config.data
    merge = part.get("spatial_merge_size") or data.get("spatial_merge_size")
    if isinstance(merge, int):
        return merge * merge
    kernel = part.get("merge_kernel_size")
    if isinstance(kernel, list) and all(isinstance(one, int) for one in kernel):
        return kernel[0] * kernel[-1] if kernel else 1
    tokens = data.get("mm_tokens_per_image")
    if isinstance(tokens, int) and tokens and patch:
        return max(1, (image // patch) ** 2 // tokens)
    shrink = data.get("downsample_ratio") or part.get("pixel_shuffle_ratio")
    if isinstance(shrink, int | float) and 0 < shrink <= 1:
        return round(1 / shrink**2)
    scale = data.get("scale_factor")
    return scale * scale if isinstance(scale, int) else 1


def with_encoder(active: Quantity, config: ModelConfig, shape: Shape, options: EngineOptions) -> Quantity:
    """The activations with the encoder's pass.

    Args:
        active: the language model's activations, with outputs for a step's tokens.
        config: the model's configuration.
        shape: the language model's sizes.
        options: vLLM's settings.
    """
    encoder = encoder_of(config, options)
    if encoder is None:
        return msgspec.structs.replace(
            active,
            high=active.high + _UNKNOWN_ENCODER,
            source=f"{active.source}; an encoder whose sizes are not known",
        )
    budget = max(options.max_num_batched_tokens, encoder.image_tokens or 0)
    outputs = budget * shape.hidden * shape.element_bytes
    more = outputs - options.max_num_batched_tokens * shape.hidden * shape.element_bytes
    run = _pass_bytes(encoder, budget, options, shape.element_bytes) + outputs
    expected = active.expected + more
    least = run * (_LEAST if encoder.image_tokens else _LEAST_UNKNOWN)
    note = f", then {budget} tokens of images" if run > expected else ""
    return Quantity(
        low=max(active.low, int(least)),
        expected=max(expected, run),
        high=max(active.high + more, _MOST * run),
        basis="estimated",
        source=active.source + note,
    )


def _pass_bytes(encoder: Encoder, budget: int, options: EngineOptions, element: int) -> int:
    """Bytes of the encoder's own pass on one rank."""
    tp = options.tensor_parallel_size
    by_items = options.encoder.tp_mode == "data"
    split = 1 if by_items else tp
    patches = budget * encoder.patches_per_token
    if by_items and encoder.image_tokens:
        # Whole items are dealt out: at least one stays on a rank.
        patches = max(patches // tp, encoder.image_tokens * encoder.patches_per_token)
    mlp = 2 * encoder.hidden + (3 if encoder.is_gated else 2) * encoder.intermediate // split
    attention = 2 * encoder.hidden + 5 * encoder.hidden // split
    pixels = _COLOURS * encoder.frames * encoder.patch**2 * _PIXEL_BYTES
    return patches * (element * max(mlp, attention) + pixels)
