"""The version table: which flags and variables exist in which vLLM, and what is default there.

Source: the Python sources of the releases 0.2.0 to 0.33.0 (``engine/arg_utils.py``, ``config.py`` and ``config/*.py``,
``envs.py``). A version that is not known counts as the newest one.
"""

from functools import cache

import msgspec
from packaging.version import InvalidVersion, Version

NEWEST = "0.33.0"

_FLAGS: dict[str, tuple[str, str | None]] = {
    "max_model_len": ("0.2.0", None),
    "gpu_memory_utilization": ("0.2.0", None),
    "max_num_seqs": ("0.2.0", None),
    "max_num_batched_tokens": ("0.2.0", None),
    "tensor_parallel_size": ("0.2.0", None),
    "pipeline_parallel_size": ("0.2.0", None),
    "block_size": ("0.2.0", None),
    "quantization": ("0.2.0", None),
    "dtype": ("0.2.0", None),
    "served_model_name": ("0.2.0", None),
    "swap_space": ("0.2.0", "0.17.1"),
    "enforce_eager": ("0.2.6", None),
    "kv_cache_dtype": ("0.3.0", None),
    "enable_prefix_caching": ("0.4.0", None),
    "enable_chunked_prefill": ("0.4.0", None),
    "num_gpu_blocks_override": ("0.4.1", None),
    "max_seq_len_to_capture": ("0.4.2", "0.10.2"),
    "cpu_offload_gb": ("0.5.3", None),
    "limit_mm_per_prompt": ("0.5.5", None),
    "rope_scaling": ("0.4.3", "0.11.2"),
    "hf_overrides": ("0.6.4", None),
    "mm_processor_kwargs": ("0.6.2", None),
    "compilation_config": ("0.6.5", None),
    "enable_expert_parallel": ("0.8.0", None),
    "data_parallel_size": ("0.8.3", None),
    "cuda_graph_sizes": ("0.9.0", "0.12.0"),
    "disable_hybrid_kv_cache_manager": ("0.9.1", None),
    "skip_mm_profiling": ("0.10.1", None),
    "kv_cache_memory_bytes": ("0.10.2", None),
    "cudagraph_capture_sizes": ("0.11.1", None),
    "max_cudagraph_capture_size": ("0.11.1", None),
    "attention_backend": ("0.13.0", None),
    "language_model_only": ("0.17.0", None),
    "mm_ipc_gpu_memory_gb": ("0.25.0", None),
    "VLLM_CPU_KVCACHE_SPACE": ("0.4.0.post1", None),
    "VLLM_ATTENTION_BACKEND": ("0.4.2", "0.14.1"),
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": ("0.5.4", None),
    "VLLM_USE_V1": ("0.6.4", "0.11.0"),
    "VLLM_ENGINE_READY_TIMEOUT_S": ("0.14.0", None),
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": ("0.18.0", None),
    "VLLM_USE_FLASHINFER_SAMPLER": ("0.6.4", None),
}


@cache
def release(version: str | None) -> Version:
    """A version to compare with; the newest one where it is unknown or not a version (a commit, ``dev``).

    A build from a checkout without tags calls itself ``0.1.dev1+g4d2a68d64``: that is no release either.
    """
    try:
        found = Version(version or NEWEST)
    except InvalidVersion:
        return Version(NEWEST)
    return Version(NEWEST) if found.is_devrelease and found.release == (0, 1) else found


def has_flag(name: str, version: str | None) -> bool:
    """True where this vLLM knows the flag or the variable; also for names that the table does not list."""
    first, last = _FLAGS.get(name, ("0.2.0", None))
    return Version(first) <= release(version) and (last is None or release(version) <= Version(last))


def flag_releases(name: str) -> tuple[str, str | None] | None:
    """The first release with a flag and the last one, None where the newest still has it; None where the table has no such flag."""
    return _FLAGS.get(name)


def at_least(version: str | None, first: str) -> bool:
    """True from the release ``first`` on."""
    return release(version) >= Version(first)


def default_utilization(version: str | None) -> float:
    """``gpu_memory_utilization`` where it is not set: 0.90 to 0.19.1, 0.92 from 0.20.0 on."""
    return 0.92 if at_least(version, "0.20.0") else 0.9


def reserves_graphs(version: str | None, estimate_env: object) -> bool:
    """True where the CUDA graphs' estimate is taken from the KV cache: by default from 0.20.0, with the variable from 0.18."""
    if not at_least(version, "0.18.0"):
        return False
    if estimate_env is None:
        return at_least(version, "0.20.0")
    return str(estimate_env).lower() not in ("0", "false", "")


class Quantities(msgspec.Struct, frozen=True):
    """The default sizes of a batch: sequences and tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int


def default_batch(version: str | None, total_bytes: int | None, *, is_server: bool = True) -> Quantities:
    """``max_num_seqs`` and ``max_num_batched_tokens`` of the V1 engine where they are not set.

    The large values go to devices with 70 GiB or more (by name, H100 and H200, before 0.8.5). A device that is not
    known counts as small, as in a front end without a device.
    """
    if not at_least(version, "0.8.0"):
        return Quantities(256, 2048)
    large = total_bytes is not None and total_bytes >= 70 << 30
    huge = total_bytes is not None and total_bytes >= 160 << 30 and at_least(version, "0.28.0")
    if huge:
        return Quantities(1024, 16384)
    if large:
        return Quantities(1024, 8192 if is_server else 16384)
    return Quantities(256, 2048 if is_server else 8192)
