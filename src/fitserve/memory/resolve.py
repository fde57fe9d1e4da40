"""vLLM's settings with every default filled in, and where each value is from."""

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.model_config import ModelConfig
from fitserve.facts.serve_options import arity
from fitserve.memory.batch import batch_defaults
from fitserve.memory.capture import captures_full, largest_capture
from fitserve.memory.context_length import ContextLength, context_length
from fitserve.memory.drafting import drafting
from fitserve.memory.encoders import encoder_options, leaves_towers_out, takes_text_alone
from fitserve.memory.given import amount, checked, positive
from fitserve.memory.history import NEWEST, at_least, default_utilization, has_flag, release
from fitserve.memory.lora_options import lora_options
from fitserve.memory.options import Device, EngineOptions
from fitserve.memory.overhead.cpu import default_cache_bytes, is_cpu
from fitserve.units import GIB

AUTO_FIT = -1
"""``max_model_len`` that asks vLLM (0.14 and later) to take the longest context that fits."""

_FIRST_AUTO_FIT = "0.14.0"

_COPIED = {
    "tensor_parallel_size": int,
    "pipeline_parallel_size": int,
    "data_parallel_size": int,
    "decode_context_parallel_size": int,
    "prefill_context_parallel_size": int,
    "enable_expert_parallel": bool,
    "block_size": int,
    "kv_cache_dtype": str,
    "dtype": str,
    "quantization": str,
    "kv_cache_memory_bytes": int,
    "num_gpu_blocks_override": int,
    "offload_group_size": int,
    "offload_num_in_group": int,
    "offload_prefetch_step": int,
    "enable_prefix_caching": bool,
    "enable_chunked_prefill": bool,
    "disable_hybrid_kv_cache_manager": bool,
    "async_scheduling": bool,
    "enforce_eager": bool,
    "mamba_cache_mode": str,
    "mamba_block_size": int,
    "mamba_cache_dtype": str,
    "mamba_ssm_cache_dtype": str,
}
"""Settings that count as they are given, with their type."""

_POSITIVE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "block_size",
    "num_gpu_blocks_override",
)
_MOST_RANKS = 1 << 14

_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Source: ``MaxLoRARanks`` in ``config/lora.py`` of vLLM 0.12 to 0.32; earlier releases take some of them."""

_REDUCED_PRECISION = {"half": "float16", "bf16": "bfloat16", "fp16": "float16"}


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a start.

    Attributes:
        options: all of them.
        sources: where each value is from, by vLLM's name: ``given``, a default with its release, ``config.json: ...``.
        context: what the configuration allows.
        is_v1: the V1 engine runs.
        auto_fit: ``max_model_len`` is to be chosen by what fits.
        estimates_graphs: ``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`` as given; None where it is not.
        captures_full: graphs of whole decode steps are captured.
        skips_multimodal: the encoder's dummy pass is skipped, or there is none.
        v2_runner: ``VLLM_USE_V2_MODEL_RUNNER`` as given; None where it is not.
        allows_long: a context beyond the configuration is only warned about.
        refused: options that this release does not know, or values that it does not take, as one sentence each.
    """

    options: EngineOptions
    sources: dict[str, str]
    context: ContextLength
    is_v1: bool
    auto_fit: bool = False
    estimates_graphs: str | None = None
    captures_full: bool = False
    skips_multimodal: bool = False
    v2_runner: bool | None = None
    allows_long: bool = False
    refused: tuple[str, ...] = ()


def resolve(
    config: ModelConfig,
    given: Mapping[str, Any],
    *,
    version: str | None,
    device: Device,
    environment: Mapping[str, str] | None = None,
    is_server: bool = True,
) -> Resolved:
    """Fill in vLLM's defaults.

    Args:
        config: the model's configuration.
        given: the settings of the user by vLLM's names with underscores, values as vLLM takes them.
        version: the release; the newest known where None.
        device: the accelerator.
        environment: variables that vLLM would see.
        is_server: the OpenAI server starts it; False for ``LLM(...)``.

    Raises:
        UsageError: a value is of the wrong kind or out of its range.
        InputError: the configuration has an absurd number.
    """
    environment = environment or {}
    version = version or NEWEST
    values: dict[str, Any] = {"vllm_version": version, "device": device}
    sources: dict[str, str] = {}
    for name, kind in _COPIED.items():
        if given.get(name) is not None:
            values[name] = _setting(name, given[name], kind)
            sources[name] = "given"
    if "dtype" in values:
        values["dtype"] = _REDUCED_PRECISION.get(values["dtype"], values["dtype"])
    if given.get("cpu_offload_gb"):
        values["cpu_offload_bytes"] = round(
            amount("cpu_offload_gb", checked("cpu_offload_gb", given["cpu_offload_gb"], float)) * GIB
        )
        sources["cpu_offload_gb"] = "given"
    values["lora"] = lora_options(given)
    if values["lora"] is not None:
        sources["lora"] = "given"
    values["encoder"] = encoder_options(config, given)
    values["language_model_only"] = leaves_towers_out(config, given, version)
    values["num_redundant_experts"] = _redundant_experts(given)
    found = drafting(given)
    if found is not None:
        values["drafting"] = found
        values["num_speculative_tokens"], values["speculative_method"] = found.tokens, found.method or None
    _refuse_too_many_ranks(values)
    is_v1 = uses_v1(version, environment)
    context = context_length(config, version)
    _length(values, sources, given, context)
    _utilization(values, sources, given, version)
    _batch(values, sources, given, config, is_v1=is_v1, is_server=is_server)
    if _optimisation_level(given) == 0:
        values["enforce_eager"], sources["enforce_eager"] = True, "given: -O0"
    _cpu_cache(values, sources, environment)
    options = EngineOptions(**values)
    options = msgspec.structs.replace(options, max_cudagraph_capture_size=largest_capture(options, given))
    auto = given.get("max_model_len") == AUTO_FIT
    runner = environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return Resolved(
        options=options,
        sources=_with_defaults(sources, options),
        context=context,
        is_v1=is_v1,
        auto_fit=auto,
        estimates_graphs=environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"),
        captures_full=captures_full(options, given),
        skips_multimodal=_skips_multimodal(config, given),
        v2_runner=None if runner is None else runner not in ("0", "false", ""),
        allows_long=environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").lower() in ("1", "true"),
        refused=_refused(given, version),
    )


def _refuse_too_many_ranks(values: Mapping[str, Any]) -> None:
    names = (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "prefill_context_parallel_size",
    )
    ranks = prod(values.get(name, 1) for name in names)
    if ranks > _MOST_RANKS:
        raise UsageError(
            f"{ranks:,} ranks are asked for, more than any machine has",
            where=", ".join(f"--{name.replace('_', '-')}" for name in names if values.get(name, 1) > 1),
        )


def _cpu_cache(values: dict[str, Any], sources: dict[str, str], environment: Mapping[str, str]) -> None:
    """The CPU backend's cache where it is fixed: by its variable, or by the release."""
    device, version = values["device"], values["vllm_version"]
    if not is_cpu(device) or values.get("kv_cache_memory_bytes") is not None:
        return
    asked = environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    try:
        fixed = round(amount("VLLM_CPU_KVCACHE_SPACE", float(asked)) * GIB) if asked else 0
    except ValueError:
        raise UsageError(
            f"VLLM_CPU_KVCACHE_SPACE {asked!r} is no number", hint="give GiB, such as 4"
        ) from None
    found = fixed or default_cache_bytes(version, device)
    if found:
        values["kv_cache_memory_bytes"] = found
        sources["kv_cache_memory_bytes"] = (
            "VLLM_CPU_KVCACHE_SPACE" if fixed else f"default of {release(version)}"
        )


def _refused(given: Mapping[str, Any], version: str) -> tuple[str, ...]:
    """What argparse or the configuration refuses in this release."""
    found = [
        f"vLLM {release(version)} has no option --{name.replace('_', '-')}"
        for name, value in given.items()
        if value is not None and (arity(name) is None or not has_flag(name, version))
    ]
    rank = given.get("max_lora_rank")
    if given.get("enable_lora") and isinstance(rank, int) and rank not in _LORA_RANKS:
        found.append(f"vLLM takes no max_lora_rank {rank}: it takes {', '.join(map(str, _LORA_RANKS))}")
    if given.get("max_model_len") == AUTO_FIT and not at_least(version, _FIRST_AUTO_FIT):
        found.append(
            f"vLLM {release(version)} does not fit max_model_len by itself; {_FIRST_AUTO_FIT} and later do"
        )
    return tuple(found)


def uses_v1(version: str | None, environment: Mapping[str, str]) -> bool:
    """True for the V1 engine: by default from 0.8.0, always from 0.11.0, with ``VLLM_USE_V1`` between 0.6.4 and 0.11.0."""
    if at_least(version, "0.11.0"):
        return True
    asked = environment.get("VLLM_USE_V1")
    if asked is not None and at_least(version, "0.6.4"):
        return asked not in ("0", "false", "")
    return at_least(version, "0.8.0")


def is_multimodal(config: ModelConfig) -> bool:
    """True where the configuration describes an encoder beside the language model."""
    return any(
        isinstance(config.data.get(name), dict)
        for name in (
            "vision_config",
            "visual",
            "audio_config",
            "vit_config",
            "vision_tower",
            "thinker_config",
        )
    )


def _skips_multimodal(config: ModelConfig, given: Mapping[str, Any]) -> bool:
    return (
        not is_multimodal(config) or bool(given.get("skip_mm_profiling")) or takes_text_alone(config, given)
    )


def _redundant_experts(given: Mapping[str, Any]) -> int:
    """Copies of experts, which only ``--enable-eplb`` makes."""
    if not given.get("enable_eplb"):
        return 0
    asked = given.get("eplb_config")
    count = asked.get("num_redundant_experts") if isinstance(asked, Mapping) else None
    count = given.get("num_redundant_experts") if count is None else count
    return count if isinstance(count, int) and 0 <= count <= 1 << 16 else 0


def _length(
    values: dict[str, Any], sources: dict[str, str], given: Mapping[str, Any], context: ContextLength
) -> None:
    asked = given.get("max_model_len")
    if asked is None or asked == AUTO_FIT:
        values["max_model_len"] = context.tokens
        sources["max_model_len"] = context.source
        return
    values["max_model_len"] = positive("max_model_len", checked("max_model_len", asked, int))
    sources["max_model_len"] = "given"


def _utilization(
    values: dict[str, Any], sources: dict[str, str], given: Mapping[str, Any], version: str
) -> None:
    asked = given.get("gpu_memory_utilization")
    if asked is None:
        values["gpu_memory_utilization"] = default_utilization(version)
        sources["gpu_memory_utilization"] = f"default of {release(version)}"
        return
    share = float(checked("gpu_memory_utilization", asked, float))
    if not 0 < share <= 1:
        raise UsageError(
            f"gpu_memory_utilization {asked} is not above 0 and at most 1", hint="give a share such as 0.9"
        )
    values["gpu_memory_utilization"], sources["gpu_memory_utilization"] = share, "given"


def _batch(
    values: dict[str, Any],
    sources: dict[str, str],
    given: Mapping[str, Any],
    config: ModelConfig,
    *,
    is_v1: bool,
    is_server: bool,
) -> None:
    version, device = values["vllm_version"], values["device"]
    found = batch_defaults(
        version,
        device,
        values["max_model_len"],
        is_v1=is_v1,
        chunked=values.get("enable_chunked_prefill"),
        is_server=is_server,
        is_multimodal=is_multimodal(config),
        world_size=values.get("tensor_parallel_size", 1) * values.get("pipeline_parallel_size", 1),
    )
    for name, default in (
        ("max_num_seqs", found.max_num_seqs),
        ("max_num_batched_tokens", found.max_num_batched_tokens),
    ):
        asked = given.get(name)
        values[name] = default if asked is None else positive(name, checked(name, asked, int))
        sources[name] = f"default of {release(version)} on {device.name}" if asked is None else "given"
    if given.get("max_num_seqs") is None and at_least(version, "0.10.1"):
        values["max_num_seqs"] = min(values["max_num_seqs"], values["max_num_batched_tokens"])


def _setting(name: str, value: Any, kind: type) -> Any:
    found = checked(name, value, kind)
    return positive(name, found) if name in _POSITIVE else found


def _optimisation_level(given: Mapping[str, Any]) -> int | None:
    level = given.get("optimization_level")
    return level if isinstance(level, int) else None


def _with_defaults(sources: dict[str, str], options: EngineOptions) -> dict[str, str]:
    """Where every setting is from; what is not named yet is the release's default."""
    default = f"default of {release(options.vllm_version)}"
    names = [name for name in options.__struct_fields__ if name not in ("vllm_version", "device")]
    return {name: sources.get(name, default) for name in names}
