"""Memory of the process that torch does not see: NCCL, kernels' modules, workspaces; and what is used before the start.

Source: about 130 measured starts. One device: 0.13 GiB to 0.17, 0.25 from 0.18 (Hopper; 0.02 to 0.2 on older cards, 0.27 to 0.6
on Blackwell), 0.30 from 0.27, where buffers that stay are part of it. On Hopper two devices 0.55 to 0.17, 2.07 from 0.18, four
2.13; on other cards 0.1 to 1; with V0 1.4 to 2.5. Pipeline stages alone: 0.07. On unified memory what the host takes
meanwhile counts too: 2.2 and 4.9 GiB on two starts.
"""

from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.shape import Shape
from fitserve.memory.resolve import Resolved
from fitserve.units import GIB, Quantity, Size

_HOPPER = 9
_CONTEXT_GIB = 0.51
_CONTEXT_SMALL_GIB = 0.35
_GROUPS_GIB = 1.53
_PIPELINE_GIB = 1.45


def non_torch(shape: Shape, resolved: Resolved) -> Quantity:
    """What the start takes outside torch, as vLLM's accounting of that release counts it."""
    options = resolved.options
    expected, low, high = _measured_gib(shape, resolved)
    source = f"tensor_parallel_size {options.tensor_parallel_size}, {options.vllm_version}"
    if not counts_everything(resolved):
        return _quantity(expected, low, high, source)
    taken = used_before(options)
    own = _quantity(expected, low, high, source)
    return Quantity(
        low=taken.low + own.low,
        expected=taken.expected + own.expected,
        high=taken.high + own.high,
        basis="estimated",
        source=f"{source}, with all that the device held before",
    )


def used_before(options: EngineOptions) -> Quantity:
    """What the device holds when vLLM takes its first snapshot: the process's own context, NCCL from 0.11.0 on, and others.

    Where free memory is given, it is what is missing of the total.
    """
    device = options.device
    many = options.tensor_parallel_size > 1 and at_least(options.vllm_version, "0.11.0")
    staged = options.pipeline_parallel_size > 1 and at_least(options.vllm_version, "0.11.0")
    major = (device.compute_capability or (0, 0))[0]
    context = _CONTEXT_GIB if major >= _HOPPER else _CONTEXT_SMALL_GIB
    own = _GROUPS_GIB if many else _PIPELINE_GIB if staged else context
    found = _quantity(
        own,
        0.5 * own if many or staged else 0.15,
        1.35 * own if many or staged else own + 0.2,
        "context of the process",
    )
    if device.free_bytes is None:
        return found
    others = max(0, device.total_bytes - device.free_bytes)
    return Quantity(
        low=others,
        expected=others + found.expected,
        high=others + found.high,
        basis="estimated",
        source=f"{device.source}, and the context of the process",
    )


def own_non_torch(counted: Size, before: Size, resolved: Resolved) -> Size:
    """What the start takes outside torch, without what the device held before it, which some releases count too.

    Args:
        counted: as the release counts it.
        before: what the device held when vLLM first looked.
        resolved: the settings.
    """
    if (
        not counts_everything(resolved)
        or not isinstance(counted, Quantity)
        or not isinstance(before, Quantity)
    ):
        return counted
    return Quantity(
        low=max(0, counted.low - before.low),
        expected=max(0, counted.expected - before.expected),
        high=max(0, counted.high - before.high),
        basis=counted.basis,
        source=counted.source,
    )


def counts_everything(resolved: Resolved) -> bool:
    """True where memory of other processes counts as the start's own.

    V1 up to 0.9.0 and V0's 0.6.4 take the device's used memory.
    """
    version = resolved.options.vllm_version
    if resolved.is_v1:
        return not at_least(version, "0.9.1")
    return at_least(version, "0.6.4") and not at_least(version, "0.6.5")


def _measured_gib(shape: Shape, resolved: Resolved) -> tuple[float, float, float]:
    """Expected, low and high."""
    options = resolved.options
    device = options.device
    if device.unified and at_least(options.vllm_version, "0.20.0"):
        return 2.5, 0.3, 5.5
    if device.compute_capability is None:
        return 0.55, 0.1, 1.2
    major = device.compute_capability[0]
    if options.tensor_parallel_size > 1:
        if not resolved.is_v1:
            return 1.4, 0.4, 3.0
        return _with_groups_gib(shape, options, is_hopper=major == _HOPPER)
    if options.pipeline_parallel_size > 1:
        return 0.07, 0.03, 0.3
    return _alone_gib(options.vllm_version, major)


def _alone_gib(version: str, major: int) -> tuple[float, float, float]:
    """On one device."""
    if at_least(version, "0.27.0"):
        return 0.3, 0.02, 0.7
    if major > _HOPPER:
        return 0.28, 0.1, 0.65
    if at_least(version, "0.18.0"):
        return (0.25, 0.2, 0.46) if major == _HOPPER else (0.2, 0.03, 0.4)
    return (0.13, 0.1, 0.3) if major == _HOPPER else (0.08, 0.01, 0.3)


def _with_groups_gib(shape: Shape, options: EngineOptions, *, is_hopper: bool) -> tuple[float, float, float]:
    """With several devices to a stage."""
    if not at_least(options.vllm_version, "0.18.0"):
        return (0.55, 0.4, 2.2) if is_hopper else (0.25, 0.1, 1.5)
    if not is_hopper:
        return 0.6, 0.1, 2.4
    base, slope = (2.065, 0.0006) if options.tensor_parallel_size == 2 else (2.13, 0.0016)
    expected = base + slope * max(0, shape.layers - 30)
    return expected, 0.9 * expected, 1.1 * expected


def _quantity(expected: float, low: float, high: float, source: str) -> Quantity:
    return Quantity(
        low=round(low * GIB),
        expected=round(expected * GIB),
        high=round(high * GIB),
        basis="estimated",
        source=source,
    )
