"""The CPU backend's terms: its process besides the weights; no graphs, nothing outside.

Source: ``v1/worker/cpu_worker.py`` of vLLM 0.13 to 0.33; one measured start of 0.32 (0.82 GiB with a tiny model).
"""

from fitserve.memory.history import at_least
from fitserve.memory.options import Device, EngineOptions
from fitserve.units import GIB, Quantity

_PROCESS_GIB = (0.6, 0.82, 1.4)
_DEFAULT_GIB = 4


def is_cpu(device: Device) -> bool:
    """True for the CPU backend."""
    return device.compute_capability is None and "cpu" in device.name.lower()


def default_cache_bytes(version: str, device: Device) -> int | None:
    """The KV cache where its size is fixed without being given: 4 GiB to 0.12, half of the memory to 0.19; else None."""
    if not at_least(version, "0.13.0"):
        return _DEFAULT_GIB * GIB
    return None if at_least(version, "0.20.0") else device.total_bytes // 2


def cpu_terms(options: EngineOptions) -> dict[str, Quantity]:
    """The terms that differ from an accelerator's."""
    low, expected, high = (round(value * GIB) for value in _PROCESS_GIB)
    nothing = Quantity.exact(0, "computed", "the CPU backend")
    device = options.device
    taken = 0 if device.free_bytes is None else max(0, device.total_bytes - device.free_bytes)
    return {
        "non_torch_bytes": Quantity(
            low=low, expected=expected, high=high, basis="estimated", source="the worker's process"
        ),
        "activation_bytes": Quantity(
            low=0, expected=0, high=GIB // 4, basis="estimated", source="part of the process"
        ),
        "cuda_graph_bytes": nothing,
        "captured_bytes": nothing,
        "allocator_bytes": nothing,
        "used_before_bytes": Quantity.exact(taken, "probed", device.source),
    }
