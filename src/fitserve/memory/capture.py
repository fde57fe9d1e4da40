"""Which batch sizes CUDA graphs are captured for, by release.

Source: ``worker/model_runner.py`` and ``config.py`` of vLLM 0.2.6 to 0.11.0, ``config/vllm.py`` (``_set_cudagraph_sizes``)
of 0.11.1 to 0.33.0.
"""

from collections.abc import Mapping
from typing import Any

from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions

_CAP = 512
_CAP_BLACKWELL = 1024
_STRIDE_DOUBLES_AT = 256


def largest_capture(options: EngineOptions, given: Mapping[str, Any]) -> int:
    """Tokens of the largest captured batch; 0 where nothing is captured.

    Args:
        options: the settings.
        given: what the user set, for the sizes themselves.
    """
    if options.enforce_eager or (
        options.device.compute_capability is None and "cpu" in options.device.name.lower()
    ):
        return 0
    compilation = given.get("compilation_config")
    inner = compilation if isinstance(compilation, Mapping) else {}
    if str(inner.get("cudagraph_mode", "")).upper() == "NONE":
        return 0
    for sizes in (
        given.get("cudagraph_capture_sizes"),
        inner.get("cudagraph_capture_sizes"),
        given.get("cuda_graph_sizes"),
    ):
        whole = (
            [int(size) for size in sizes or [] if str(size).isdecimal()] if isinstance(sizes, list) else []
        )
        if whole:
            return max(whole)
    asked = given.get("max_cudagraph_capture_size", inner.get("max_cudagraph_capture_size"))
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0:
        return min(asked, options.max_num_batched_tokens)
    return min(_default(options), options.max_num_batched_tokens)


def captures_full(options: EngineOptions, given: Mapping[str, Any]) -> bool:
    """True where whole decode steps are captured, not only the pieces between attention: the default from 0.11.0 on.

    Source: ``CUDAGraphMode`` in ``config/compilation.py`` of vLLM 0.10.1 to 0.33.0, the optimisation levels in
    ``config/vllm.py`` of 0.12.0 to 0.33.0; up to 0.10.2 it is ``full_cuda_graph`` or a mode that is asked for.

    Args:
        options: the settings, ``max_cudagraph_capture_size`` filled in.
        given: what the user set, for the mode itself.
    """
    if not options.max_cudagraph_capture_size:
        return False
    compilation = given.get("compilation_config")
    inner = compilation if isinstance(compilation, Mapping) else {}
    mode = inner.get("cudagraph_mode")
    if mode is not None:
        return str(mode).upper().startswith("FULL")
    if not at_least(options.vllm_version, "0.11.0"):
        return inner.get("full_cuda_graph") is True
    return not (at_least(options.vllm_version, "0.12.0") and given.get("optimization_level") == 1)


def _default(options: EngineOptions) -> int:
    version = options.vllm_version
    if not at_least(version, "0.8.0"):
        return min(256, options.max_num_seqs) if not at_least(version, "0.6.2") else options.max_num_seqs
    if not at_least(version, "0.10.0"):
        return _CAP
    drafted = 1 + options.num_speculative_tokens if at_least(version, "0.13.0") else 1
    major = (options.device.compute_capability or (0, 0))[0]
    cap = _CAP_BLACKWELL if major == 10 and at_least(version, "0.28.0") else _CAP
    return min(2 * options.max_num_seqs * drafted, cap)


def capture_count(largest: int, version: str | None) -> int:
    """How many sizes are captured up to the largest: 1, 2, 4, steps of 8, and of 16 from 256 on (0.11.1 and later)."""
    if largest <= 0:
        return 0
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    if not at_least(version, "0.11.1"):
        return small + largest // 8
    eights = min(largest, _STRIDE_DOUBLES_AT - 8) // 8
    sixteens = max(0, (largest - _STRIDE_DOUBLES_AT) // 16 + 1) if largest >= _STRIDE_DOUBLES_AT else 0
    return small + eights + sixteens
