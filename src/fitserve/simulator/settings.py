"""What a start will do: the given arguments, the defaults of the release and of the device, and what vLLM refuses at once.

Source: ``engine/arg_utils.py``, ``config/*.py`` of vLLM 0.7.3 to 0.32.0.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from fitserve.simulator.machine import Device
from fitserve.simulator.models import Model
from fitserve.simulator.releases import at_least

GIB = 1 << 30


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved settings of a start. Sizes in bytes; ``max_model_len`` -1 is vLLM's own choice."""

    version: str
    max_model_len: int
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    cudagraph_mode: str = "FULL_AND_PIECEWISE"
    capture_sizes: tuple[int, ...] = ()
    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    cpu_offload_bytes: int = 0
    reserve_graphs: bool = False
    chunked_prefill: bool = True
    prefix_caching: bool = True
    v1: bool = True
    image_items: int = 0

    @property
    def world_size(self) -> int:
        """Ranks of one engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def captures(self) -> int:
        """How many graphs are captured."""
        if self.enforce_eager or self.cudagraph_mode == "NONE":
            return 0
        return len(self.capture_sizes) * (2 if self.cudagraph_mode == "FULL_AND_PIECEWISE" else 1)


def default_utilization(version: str) -> float:
    """0.90 up to 0.19.1, 0.92 from 0.20.0."""
    return 0.92 if at_least(version, "0.20.0") else 0.9


def default_sequences(version: str, device: Device, *, v1: bool) -> int:
    """``max_num_seqs`` of the API server."""
    if not v1:
        return 256
    large = device.total_bytes >= 70 * GIB and not ("A100" in device.name and at_least(version, "0.9.0"))
    return 1024 if large else 256


def default_tokens(version: str, device: Device, length: int, *, v1: bool, chunked: bool) -> int:
    """``max_num_batched_tokens`` of the API server."""
    if not v1:
        return 2048 if chunked else max(length, 2048)
    if device.total_bytes >= 160 * GIB and at_least(version, "0.28.0"):
        return 16384
    large = device.total_bytes >= 70 * GIB and not ("A100" in device.name and at_least(version, "0.9.0"))
    return 8192 if large else 2048


def capture_sizes(given: Mapping[str, Any], version: str, sequences: int, tokens: int) -> tuple[int, ...]:
    """Batch sizes that are captured."""
    config = given.get("compilation_config")
    config = config if isinstance(config, dict) else {}
    listed = (
        given.get("cudagraph_capture_sizes")
        or config.get("cudagraph_capture_sizes")
        or given.get("cuda_graph_sizes")
    )
    if isinstance(listed, list) and (len(listed) > 1 or "cuda_graph_sizes" not in given):
        return tuple(sorted({int(size) for size in listed if int(size) <= tokens}))
    if not at_least(version, "0.8.0"):
        return tuple(size for size in (1, 2, 4, *range(8, sequences + 8, 8)) if size < sequences + 8)
    if not at_least(version, "0.9.0"):
        most = 512
    elif isinstance(listed, list):
        most = int(listed[0])
    else:
        most = min(sequences * 2, 512)
    limit = given.get("max_cudagraph_capture_size") or config.get("max_cudagraph_capture_size")
    most = min(int(limit) if limit else most, tokens)
    step = 16 if at_least(version, "0.11.1") else 8
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 1, step)]
    return tuple(size for size in sizes if size <= most)


def graph_mode(given: Mapping[str, Any], version: str) -> str:
    """``cudagraph_mode`` as it is resolved."""
    config = given.get("compilation_config")
    config = config if isinstance(config, dict) else {}
    level = given.get("optimization_level", config.get("level"))
    if given.get("enforce_eager") or (str(level) == "0"):
        return "NONE"
    chosen = config.get("cudagraph_mode")
    if chosen is not None:
        return str(chosen).upper()
    return "FULL_AND_PIECEWISE" if at_least(version, "0.11.0") and str(level) != "1" else "PIECEWISE"


def resolve(
    given: Mapping[str, Any], version: str, device: Device, model: Model, environ: Mapping[str, str]
) -> Settings:
    """The settings of a start that nothing refuses."""
    v1 = environ.get("VLLM_USE_V1", "1" if at_least(version, "0.8.0") else "0") == "1" or at_least(
        version, "0.11.0"
    )
    length = int(given.get("max_model_len") or model.longest)
    chunked = v1 if given.get("enable_chunked_prefill") is None else bool(given["enable_chunked_prefill"])
    if not v1 and given.get("enable_chunked_prefill") is None:
        chunked = length > 32768
    sequences = given.get("max_num_seqs")
    tokens = given.get("max_num_batched_tokens")
    if tokens is None:
        tokens = default_tokens(version, device, length, v1=v1, chunked=chunked)
        if v1 and not chunked and at_least(version, "0.10.1"):
            tokens = max(length, tokens)
        wanted = sequences or default_sequences(version, device, v1=v1)
        tokens = min(tokens, wanted * length) if length > 0 else tokens
    if sequences is None:
        usual = default_sequences(version, device, v1=v1)
        sequences = min(usual, max(tokens, 1)) if at_least(version, "0.9.0") else usual
    mode = graph_mode(given, version)
    default = "1" if at_least(version, "0.20.0") else "0"
    estimates = (
        at_least(version, "0.18.0")
        and environ.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", default) == "1"
    )
    return Settings(
        version=version,
        max_model_len=length,
        gpu_memory_utilization=float(given.get("gpu_memory_utilization", default_utilization(version))),
        max_num_seqs=int(sequences),
        max_num_batched_tokens=int(tokens),
        tensor_parallel_size=int(given.get("tensor_parallel_size", 1)),
        pipeline_parallel_size=int(given.get("pipeline_parallel_size", 1)),
        data_parallel_size=int(given.get("data_parallel_size", 1)),
        dtype=resolve_dtype(str(given.get("dtype", "auto")), model),
        kv_cache_dtype=str(given.get("kv_cache_dtype", "auto")),
        quantization=given.get("quantization") or model.quantization,
        enforce_eager=mode == "NONE" and bool(given.get("enforce_eager")),
        cudagraph_mode=mode,
        capture_sizes=() if mode == "NONE" else capture_sizes(given, version, int(sequences), int(tokens)),
        block_size=int(given.get("block_size") or 16),
        kv_cache_memory_bytes=given.get("kv_cache_memory_bytes"),
        num_gpu_blocks_override=given.get("num_gpu_blocks_override"),
        cpu_offload_bytes=math.floor(float(given.get("cpu_offload_gb", 0)) * GIB),
        reserve_graphs=v1 and estimates and mode != "NONE",
        chunked_prefill=chunked,
        prefix_caching=bool(given.get("enable_prefix_caching", v1)),
        v1=v1,
        image_items=image_items(given, model, int(tokens)),
    )


def image_items(given: Mapping[str, Any], model: Model, tokens: int) -> int:
    """How many of the largest images the encoder profiles: as many as fill its budget; 0 where it is left out."""
    size = model.cache.image_tokens
    if not size or given.get("skip_mm_profiling") or given.get("language_model_only"):
        return 0
    limits = given.get("limit_mm_per_prompt")
    if isinstance(limits, str):
        limits = json.loads(limits)
    if isinstance(limits, dict) and limits.get("image") == 0:
        return 0
    return max(1, tokens // size)


def resolve_dtype(given: str, model: Model) -> str:
    """The dtype of the weights: the checkpoint's unless one is given; float32 checkpoints run in half precision."""
    names = {"half": "float16", "float": "float32"}
    if given != "auto":
        return names.get(given, given)
    stored = str(
        model.config.get("torch_dtype")
        or model.text.get("torch_dtype")
        or model.config.get("dtype")
        or "bfloat16"
    )
    return "float16" if stored == "float32" else stored
