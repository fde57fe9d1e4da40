"""The peak of the profile run above what stays: the sampler on full logits, or the forward pass, and workspaces.

    activation = max(sampler, forward) + experts' workspaces + encoder outputs
                 (before 0.12 the workspaces are freed with the forward pass and count there)
    sampler    = b S V + 4 SM V [from 0.17] + T H e + S H e + c
    forward    = T e (3 I / tp + 4 H) + c
    experts    = T k e (max(I_e / tp, H) + max(2 I_e / tp, H))
    encoder    = T H e

S = max_num_seqs, T = max_num_batched_tokens, V = vocabulary, H = width, I = MLP width, I_e = expert width, k = experts a
token visits, e = bytes of the dtype, SM = multiprocessors; b = 36 + e to 0.16, 12 + e from 0.17, e with the V2 model runner,
whose profile run skips top-k and top-p (e of it are the logits themselves); c = 45 MiB from Hopper on, 8 MiB before. Where FlashInfer samples, which V1 of 0.8 to
0.16 does where it is told to, nothing is sorted and b is 14 there too (two of seven reported starts of 0.10 and 0.11): the
interval reaches down to it.

Source: ``profile_run`` and ``_dummy_sampler_run`` of vLLM 0.6 to 0.32, and 52 measured starts of 0.15 to 0.19: mean error
0.015 GiB, largest 0.37 (before float32 logits counted); see ``docs/memory-model.md`` for the widths of the interval.
"""

from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.interval import estimated
from fitserve.memory.overhead.shape import Shape
from fitserve.units import MIB, Quantity

_LOGITS_FULL_SORT = 38
_LOGITS_TOP_K = 14
_LOGITS_ALONE = 2
_HOPPER_MIB = 45
_OLDER_MIB = 8
_HOPPER = 9
_DEFAULT_MULTIPROCESSORS = 132
_EXPERT_CHUNK_TOKENS = 16 << 10
_EXPERT_CHUNK_TOKENS_BEFORE_0_12 = 64 << 10


def activation(
    shape: Shape,
    options: EngineOptions,
    *,
    v2_runner: bool,
    is_last_stage: bool = True,
    skips_multimodal: bool = True,
) -> Quantity:
    """The activations' peak of one rank.

    Args:
        shape: the model's sizes.
        options: vLLM's settings.
        v2_runner: the V2 model runner profiles.
        is_last_stage: the rank samples.
        skips_multimodal: there is no encoder, or it is not profiled.
    """
    constant = _constant_bytes(options)
    forward = _forward_bytes(shape, options) + constant
    sampler = (
        _sampler_bytes(shape, options, v2_runner=v2_runner) + constant
        if is_last_stage and shape.generates
        else 0
    )
    encoder = 0 if skips_multimodal else options.max_num_batched_tokens * shape.hidden * shape.element_bytes
    experts = _expert_bytes(shape, options)
    if at_least(options.vllm_version, "0.12.0"):
        peak = max(sampler, forward) + experts + encoder
    else:
        peak = max(sampler, forward + experts) + encoder
    low = peak
    if sampler >= forward and at_least(options.vllm_version, "0.8.0"):
        unsorted = max(0, copies_of_logits(options, v2_runner=v2_runner) - _LOGITS_TOP_K)
        low -= unsorted * min(options.max_num_seqs, options.max_num_batched_tokens) * shape.vocabulary
    term = "sampler" if sampler >= forward else "forward pass"
    width = _width(shape, v2_runner=v2_runner, skips_multimodal=skips_multimodal, samples=sampler >= forward)
    found = estimated(
        peak,
        *width,
        source=f"{term}, {options.max_num_seqs} sequences, {options.max_num_batched_tokens} tokens",
    )
    return Quantity(
        low=max(0, found.low - (peak - low)),
        expected=peak,
        high=found.high,
        basis=found.basis,
        source=found.source,
    )


def copies_of_logits(options: EngineOptions, *, v2_runner: bool) -> int:
    """Bytes that the sampler has for each logit: b of the formula."""
    if v2_runner:
        return _LOGITS_ALONE
    return _LOGITS_TOP_K if at_least(options.vllm_version, "0.17.0") else _LOGITS_FULL_SORT


def _sampler_bytes(shape: Shape, options: EngineOptions, *, v2_runner: bool) -> int:
    tokens, seqs = options.max_num_batched_tokens, min(options.max_num_seqs, options.max_num_batched_tokens)
    newer = at_least(options.vllm_version, "0.17.0")
    copies = copies_of_logits(options, v2_runner=v2_runner)
    kernels = (
        4 * (options.device.multiprocessors or _DEFAULT_MULTIPROCESSORS) if newer and not v2_runner else 0
    )
    states = (tokens + seqs) * shape.hidden * shape.element_bytes
    copies += shape.element_bytes - 2
    return (copies * seqs + kernels) * shape.vocabulary + states + _between_stages(shape, options)


def _forward_bytes(shape: Shape, options: EngineOptions) -> int:
    tokens, tp = options.max_num_batched_tokens, options.tensor_parallel_size
    mlp = (3 if shape.is_gated else 2) * shape.intermediate // tp
    copies = max(shape.intermediate // tp, shape.hidden) if shape.eight_bit_activations else 0
    found = tokens * (shape.element_bytes * (mlp + 4 * shape.hidden) + copies)
    return found + _between_stages(shape, options)


def _between_stages(shape: Shape, options: EngineOptions) -> int:
    if options.pipeline_parallel_size == 1:
        return 0
    return 2 * options.max_num_batched_tokens * shape.hidden * shape.element_bytes


def _expert_bytes(shape: Shape, options: EngineOptions) -> int:
    if not shape.experts_per_token or shape.monolithic_experts:
        return 0
    chunk = (
        _EXPERT_CHUNK_TOKENS if at_least(options.vllm_version, "0.12.0") else _EXPERT_CHUNK_TOKENS_BEFORE_0_12
    )
    split = 1 if options.enable_expert_parallel else options.tensor_parallel_size
    width = shape.expert_intermediate // split
    tokens = min(options.max_num_batched_tokens, chunk)
    return (
        tokens
        * shape.experts_per_token
        * shape.element_bytes
        * (max(width, shape.hidden) + max(2 * width, shape.hidden))
    )


def _constant_bytes(options: EngineOptions) -> int:
    major = (options.device.compute_capability or (0, 0))[0]
    return (_HOPPER_MIB if major >= _HOPPER else _OLDER_MIB) * MIB


def _width(
    shape: Shape, *, v2_runner: bool, skips_multimodal: bool, samples: bool
) -> tuple[float, float, int]:
    """The interval's shares below and above, and the bytes on both sides."""
    if v2_runner:
        return 0.35, 0.6, 256 * MIB
    if not skips_multimodal:
        return 0.1, 0.5, 256 * MIB
    if not samples or shape.element_bytes != 2 or shape.has_states:
        return 0.1, 0.25, 128 * MIB
    return 0.03, 0.05, 64 * MIB
