"""The memory of each rank, term by term, with the identity of the release's own accounting.

    kv_cache = total x gpu_memory_utilization - weights - allocator - activation - non_torch [- cuda_graph]

Source: ``worker/worker.py`` and ``v1/worker/gpu_worker.py`` of vLLM 0.2.0 to 0.33.0. What each release counts as
``non_torch`` differs (``overhead/non_torch.py``); from 0.27 on weights and non-torch are what the free memory has fallen by.
On 61 debug logs of 0.19 the identity closes to 0.01 GiB, the rounding of the log.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.activation import activation
from fitserve.memory.overhead.cpu import cpu_terms, is_cpu
from fitserve.memory.overhead.drafting import with_drafting
from fitserve.memory.overhead.encoder import with_encoder
from fitserve.memory.overhead.graphs import captured, reserved
from fitserve.memory.overhead.interval import left_after
from fitserve.memory.overhead.non_torch import non_torch, used_before
from fitserve.memory.overhead.offload import offloaded_bytes
from fitserve.memory.overhead.rounding import tails
from fitserve.memory.overhead.runner import uses_v2_runner
from fitserve.memory.overhead.shape import shape_of
from fitserve.memory.resolve import Resolved
from fitserve.memory.weights.ranks import RankWeights
from fitserve.units import Quantity, Size, Unknown, gib


class RankBudget(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's memory, in bytes.

    Attributes:
        rank: its number: pipeline stages one after the other, tensor parallel ranks within each.
        total_bytes: the device.
        requested_bytes: total times ``gpu_memory_utilization``.
        weights_bytes: parameters and buffers.
        activation_bytes: the profile run's peak above what stays.
        non_torch_bytes: NCCL, kernels, what is outside torch.
        cuda_graph_bytes: what is reserved for graphs before the KV cache is sized.
        allocator_bytes: tails of the weights' blocks and copies of weights, which vLLM's log counts as weights.
        kv_cache_bytes: what is left; below 0 where nothing is.
        captured_bytes: what the graphs take when they are captured.
        step_bytes: what a step of requests, or the sampler's warm-up, takes beside cache and graphs: at most the profile run's peak.
        used_before_bytes: what the device holds when vLLM first looks.
        stage: its pipeline stage.
        parameter_bytes: the parameters among the weights, as vLLM's classes allocate them; none is offloaded yet.
    """

    rank: int
    total_bytes: int
    requested_bytes: int
    weights_bytes: Size
    activation_bytes: Size
    non_torch_bytes: Size
    cuda_graph_bytes: Size
    kv_cache_bytes: Size
    captured_bytes: Size
    step_bytes: Size
    used_before_bytes: Size
    allocator_bytes: Size
    stage: int = 0
    parameter_bytes: Size


def rank_budgets(
    config: ModelConfig,
    resolved: Resolved,
    weights: Sequence[RankWeights] | Unknown,
    measured: Mapping[str, Quantity] | None = None,
) -> tuple[RankBudget, ...]:
    """The memory of every rank.

    Args:
        config: the model's configuration.
        resolved: vLLM's settings.
        weights: every rank's weights, or why they are not known.
        measured: terms that a log of such a start shows; they count instead of the estimates.

    Raises:
        InputError: the configuration lacks a number.
    """
    options = resolved.options
    tp = options.tensor_parallel_size
    shape = shape_of(config, options)
    v2 = uses_v2_runner(config, resolved, shape)
    fixed = {
        "non_torch_bytes": non_torch(shape, resolved),
        "cuda_graph_bytes": reserved(shape, resolved, v2_runner=v2),
        "captured_bytes": captured(shape, resolved),
        "used_before_bytes": used_before(options),
        "allocator_bytes": tails(config, shape, options),
    }
    known = {**(cpu_terms(options) if is_cpu(options.device) else {}), **(measured or {})}
    if "weights_bytes" in known:
        fixed["allocator_bytes"] = Quantity.exact(0, "measured", known["weights_bytes"].source)
    fixed.update({name: size for name, size in known.items() if name in fixed})
    found: list[RankBudget] = []
    last = options.pipeline_parallel_size - 1
    for stage in range(options.pipeline_parallel_size):
        active = activation(
            shape,
            options,
            v2_runner=v2,
            is_last_stage=stage == last,
            skips_multimodal=resolved.skips_multimodal or stage > 0,
        )
        if shape.multimodal and not resolved.skips_multimodal and stage == 0:
            active = with_encoder(active, config, shape, options)
        active = with_drafting(active, shape, options, is_last_stage=stage == last)
        for rank in range(stage * tp, (stage + 1) * tp):
            held = weights if isinstance(weights, Unknown) else _held(weights[rank], options)
            active = known.get("activation_bytes", active)
            held = known.get("weights_bytes", held)
            params = weights if isinstance(weights, Unknown) else weights[rank].param_bytes
            step = known.get("step_bytes", active)
            found.append(
                _budget((rank, stage), resolved, (held, params), active, {**fixed, "step_bytes": step})
            )
    return tuple(found)


def requested_bytes(resolved: Resolved) -> int:
    """Total times utilization, rounded up from 0.14 on."""
    options = resolved.options
    asked = options.device.total_bytes * options.gpu_memory_utilization
    return ceil(asked) if at_least(options.vllm_version, "0.14.0") else int(asked)


def _budget(
    place: tuple[int, int],
    resolved: Resolved,
    loaded: tuple[Size, Size],
    active: Quantity,
    fixed: dict[str, Quantity],
) -> RankBudget:
    """One rank's terms: its place is its number and its stage, what is loaded its weights and the parameters among them."""
    requested, (weights, params) = requested_bytes(resolved), loaded
    return RankBudget(
        rank=place[0],
        stage=place[1],
        total_bytes=resolved.options.device.total_bytes,
        requested_bytes=requested,
        weights_bytes=weights,
        parameter_bytes=params,
        activation_bytes=active,
        kv_cache_bytes=_kv_cache(resolved, requested, weights, active, fixed),
        **fixed,
    )


def _kv_cache(
    resolved: Resolved, requested: int, weights: Size, active: Quantity, fixed: dict[str, Quantity]
) -> Size:
    pinned = resolved.options.kv_cache_memory_bytes
    if pinned is not None:
        return Quantity.exact(pinned, "given", "kv_cache_memory_bytes")
    if isinstance(weights, Unknown):
        return weights
    terms = (weights, active, fixed["allocator_bytes"], fixed["non_torch_bytes"], fixed["cuda_graph_bytes"])
    return left_after(requested, terms, source="requested less weights, activation, non-torch and graphs")


def _held(weights: RankWeights, options: EngineOptions) -> Quantity:
    """Parameters, buffers, the slots for adapters and what drafts, on the device."""
    parts = (weights.param_bytes, weights.buffer_bytes, weights.lora_bytes, weights.draft_bytes)
    params = weights.param_bytes
    moved = offloaded_bytes(weights, options)
    source = params.source
    for part, words in ((weights.lora_bytes, "for LoRA adapters"), (weights.draft_bytes, "of what drafts")):
        if part.high:
            source += f", {gib(part.expected)} {words}"
    return Quantity(
        low=sum(part.low for part in parts) - moved,
        expected=sum(part.expected for part in parts) - moved,
        high=sum(part.high for part in parts) - moved,
        basis="estimated" if any(part.low != part.high for part in parts[2:]) else params.basis,
        source=source,
    )
