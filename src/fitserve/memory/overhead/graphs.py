"""Memory of the CUDA graphs: what capturing takes, and what vLLM reserves for it beforehand.

    actual = A + 0.18 GiB + (0.0157 GiB [+ 0.0116 with experts]) layers / pp x graphs / 102
    A      = 4 x 32 x captured tokens x heads / tp x head size      FlashAttention 3's accumulator, full graphs on Hopper

Source: 49 measured starts of 0.19: mean error 0.08 GiB, largest 0.34, leaving one model out 0.09 and 0.40; vLLM's own
estimate is off by 0.18 on average and by up to 0.93, because it extrapolates two captures. Other devices differ: on seven of
them the graphs took 0.5 to 3.7 times of this (T4, A100, L40S, RTX 4090, RTX PRO 6000, GB200, MI300X), vLLM's estimate 2.2 times on
the GB200.
"""

from fitserve.memory.capture import capture_count
from fitserve.memory.history import at_least, reserves_graphs
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.interval import estimated
from fitserve.memory.overhead.shape import Shape
from fitserve.memory.resolve import Resolved
from fitserve.units import GIB, MIB, Quantity

_FIXED_GIB = 0.18
_LAYER_GIB = 0.0157
_EXPERT_LAYER_GIB = 0.0116
_GRAPHS_MEASURED = 102
_SPLITS = 32
_FLOAT32_BYTES = 4
_HOPPER = 9
_LUMP_MIB = 950
"""How far vLLM's estimate goes above: its second capture opens a fresh block of the allocator."""


def captured(shape: Shape, resolved: Resolved) -> Quantity:
    """What the captured graphs take; 0 where none are."""
    options = resolved.options
    expected = _captured_bytes(shape, resolved)
    if not expected:
        return Quantity.exact(0, "computed", "no graphs are captured")
    major = (options.device.compute_capability or (0, 0))[0]
    above = 0.6 if major == _HOPPER else 3.0
    return estimated(expected, 0.45, above, 128 * MIB, source=_source(options))


def reserved(shape: Shape, resolved: Resolved, *, v2_runner: bool) -> Quantity:
    """What is taken from the KV cache for graphs; 0 in releases that reserve nothing.

    From 0.20 the estimate counts (0.18 and 0.19 with ``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS``); the V2 runner estimates
    nothing before 0.29; on ROCm it counts from 0.26.
    """
    options = resolved.options
    expected = _captured_bytes(shape, resolved)
    version = options.vllm_version
    is_cuda = options.device.compute_capability is not None
    counts = (
        resolved.is_v1
        and reserves_graphs(version, resolved.estimates_graphs)
        and (is_cuda or at_least(version, "0.26.0"))
        and (not v2_runner or at_least(version, "0.29.0"))
    )
    if not counts or not expected:
        return Quantity.exact(0, "computed", "nothing is reserved for graphs")
    if v2_runner:
        return estimated(expected, 0.6, 0.6, 256 * MIB, source=_source(options))
    major = (options.device.compute_capability or (0, 0))[0]
    above = 0.2 if major == _HOPPER else 1.25
    found = estimated(expected, 0.4, above, 128 * MIB, source=_source(options))
    return Quantity(
        low=found.low,
        expected=found.expected,
        high=max(found.high, expected + _LUMP_MIB * MIB),
        basis=found.basis,
        source=found.source,
    )


def _captured_bytes(shape: Shape, resolved: Resolved) -> int:
    options = resolved.options
    largest = options.max_cudagraph_capture_size or 0
    if not largest or options.enforce_eager:
        return 0
    version = options.vllm_version
    full = resolved.captures_full
    graphs = capture_count(largest, version)
    if full:
        graphs += capture_count(min(largest, options.max_num_seqs), version)
    layers = shape.layers / options.pipeline_parallel_size
    share = graphs / _GRAPHS_MEASURED
    grown = _LAYER_GIB * layers + (_EXPERT_LAYER_GIB * shape.layers if shape.experts_per_token else 0)
    accumulator = _accumulator_bytes(shape, options) if full else 0
    return accumulator + round((_FIXED_GIB + grown * share) * GIB)


def _accumulator_bytes(shape: Shape, options: EngineOptions) -> int:
    major = (options.device.compute_capability or (0, 0))[0]
    if major != _HOPPER or shape.element_bytes == _FLOAT32_BYTES:
        return 0
    largest = options.max_cudagraph_capture_size or 0
    return (
        _FLOAT32_BYTES * _SPLITS * largest * (shape.heads // options.tensor_parallel_size) * shape.head_size
    )


def _source(options: EngineOptions) -> str:
    return f"captured sizes up to {options.max_cudagraph_capture_size}, {options.vllm_version}"
