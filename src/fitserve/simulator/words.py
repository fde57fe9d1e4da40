"""The words with which a start fails, by release.

Source: ``v1/core/kv_cache_utils.py``, ``v1/worker/*.py``, ``config/compilation.py`` of vLLM 0.8.5 to 0.32.0; PyTorch's out-of-memory error
of 2.5 to 2.13.
"""

from fitserve.simulator.releases import at_least
from fitserve.simulator.start import Start
from fitserve.simulator.voice import gib

_MIB, _GIB = 1 << 20, 1 << 30
_MORE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
_CPU_TOO = "(this flag also controls CPU memory reservation on the CPU backend, despite its name)"


def free_memory(start: Start) -> str:
    """Too little is free at the start."""
    version, util = start.settings.version, start.settings.gpu_memory_utilization
    on = f" cuda:{start.rank}" if at_least(version, "0.14.0") else ""
    return (
        f"ValueError: Free memory on device{on} ({gib(start.free_then_bytes)}/{gib(start.total_bytes)} GiB) on startup is less than "
        f"desired GPU memory utilization ({util}, {gib(start.requested_bytes)} GiB). Decrease GPU memory utilization or reduce GPU "
        "memory used by other processes."
    )


def out_of_memory(start: Start, chunk: int, *, held: int, torch_held: int) -> str:
    """PyTorch's error.

    Args:
        start: the start.
        chunk: the allocation that did not fit, bytes.
        held: by this process, with the context.
        torch_held: of it, by PyTorch.
    """
    free = max(start.total_bytes - held - (start.total_bytes - start.free[start.rank]), 0)
    variable = (
        "PYTORCH_ALLOC_CONF" if at_least(start.settings.version, "0.17.0") else "PYTORCH_CUDA_ALLOC_CONF"
    )
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {torch_size(chunk)}. GPU {start.rank} has a total capacity of "
        f"{start.total_bytes / _GIB:.2f} GiB of which {torch_size(free)} is free. Including non-PyTorch memory, this process has "
        f"{torch_size(held)} memory in use. Of the allocated memory {torch_size(torch_held)} is allocated by PyTorch, and "
        f"{torch_size(torch_held * 0.004)} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        f"setting {variable}=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def torch_size(size: float) -> str:
    """Two digits, and the unit by the size."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size / 1024:.2f} KiB" if size >= 1024 else f"{int(size)} bytes"


def no_blocks(version: str) -> str:
    """Nothing is left for the cache."""
    words = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine"
    if at_least(version, "0.22.0"):
        return f"{words} {_CPU_TOO}. {_MORE}"
    return f"{words}. {_MORE}" if at_least(version, "0.13.0") else f"{words}."


def too_small(start: Start) -> str:
    """One request of the whole length does not fit."""
    version, length = start.settings.version, start.max_model_len
    fits = start.pool.longest(start.available_bytes, length)
    model = "model's" if at_least(version, "0.21.0") else "models's"

    def size(value: float) -> str:
        return gib(value) if at_least(version, "0.13.0") else f"{value / _GIB:.2f}"

    head = (
        f"ValueError: To serve at least one request with the {model} max seq len ({length}), ({size(start.needed_bytes)} GiB KV cache "
        f"is needed, which is larger than the available KV cache memory ({size(start.available_bytes)} GiB)."
    )
    if not at_least(version, "0.9.1"):
        hint = " Based on the available memory," if fits else ""
    else:
        hint = (
            f" Based on the available memory, the estimated maximum model length is {fits}." if fits else ""
        )
    gap = "  " if not at_least(version, "0.13.0") and not at_least(version, "0.9.1") else " "
    also = " (which also controls CPU memory on the CPU backend)" if at_least(version, "0.22.0") else ""
    tail = f"Try increasing `gpu_memory_utilization`{also} or decreasing `max_model_len` when initializing the engine."
    return f"{head}{hint}{gap}{tail}" + (f" {_MORE}" if at_least(version, "0.13.0") else "")


def nothing_fits() -> str:
    """Not one token fits where vLLM chooses the length."""
    return (
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try increasing "
        "`gpu_memory_utilization`."
    )


def changed(start: Start, change: int) -> str:
    """Others let go of memory meanwhile."""
    version, free = start.settings.version, start.free[0] - start.needs.context
    now = free - start.needs.weights - start.needs.non_torch + change
    if not at_least(version, "0.9.1"):
        return (
            f"AssertionError: Error in memory profiling. Initial free memory {free}, current free memory {now}. This happens when the "
            "GPU memory was not properly cleaned up before initializing the vLLM instance."
        )
    return (
        f"AssertionError: Error in memory profiling. Initial free memory {gib(free)} GiB, current free memory {gib(now)} GiB. This "
        "happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization. "
        "To fix this, ensure consistent GPU memory allocation or isolate vLLM in its own container."
    )


def sampler(sequences: int) -> str:
    """The sampler's warm-up does not fit."""
    return (
        f"RuntimeError: CUDA out of memory occurred when warming up sampler with {sequences} dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
    )


def states(start: Start) -> str:
    """Fewer states than sequences."""
    return (
        f"ValueError: max_num_seqs ({start.settings.max_num_seqs}) exceeds available Mamba cache blocks ({start.blocks}). Each decode "
        "sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{start.blocks} or increase gpu_memory_utilization."
    )


def pinned(start: Start) -> str:
    """The line where the cache's size was set by hand."""
    size = start.settings.kv_cache_memory_bytes or 0
    reserved = (
        f"{size / _GIB:.2f}GiB" if not at_least(start.settings.version, "0.14.0") else f"{gib(size)} GiB"
    )
    return (
        f"Initial free memory {gib(min(start.free) - start.needs.context)} GiB, reserved {reserved} memory for KV Cache as specified by "
        "kv_cache_memory_bytes config and skipped memory profiling. This does not respect the gpu_memory_utilization config. Only use "
        "kv_cache_memory_bytes config when you want manual control of KV cache memory size. If OOM'ed, check the difference of initial "
        "free memory between the current run and the previous run where kv_cache_memory_bytes is suggested and update it "
        "correspondingly."
    )


def graphs_on(start: Start) -> str:
    """The graphs' estimate is taken from the cache (0.20 and newer)."""
    util, share = start.settings.gpu_memory_utilization, start.needs.estimate / start.total_bytes
    return (
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization="
        f"{util:.4f} is equivalent to --gpu-memory-utilization={util - share:.4f} without CUDA graph memory profiling. To maintain the "
        f"same effective KV cache size as before, increase --gpu-memory-utilization to {min(util + share, 1.0):.4f}. To disable, set "
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0."
    )


def graphs_soon(start: Start) -> str:
    """The graphs' estimate is told and not taken (0.18 and 0.19)."""
    util, share = start.settings.gpu_memory_utilization, start.needs.estimate / start.total_bytes
    return (
        "In v0.19, CUDA graph memory profiling will be enabled by default (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), which more "
        "accurately accounts for CUDA graph memory during KV cache allocation. To try it now, set "
        f"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase --gpu-memory-utilization from {util:.4f} to "
        f"{min(util + share, 1.0):.4f} to maintain the same effective KV cache size."
    )
