"""A plan's question, put to an engine too."""

from collections.abc import Sequence
from pathlib import Path

from fitserve.facts.ask_engine import (
    ASK_SECONDS,
    EngineAnswer,
    PretendedDevice,
    Question,
    ask_engine,
)
from fitserve.memory.budget import rank_budgets
from fitserve.memory.history import release
from fitserve.memory.kv import KvCache, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.memory.overhead.cpu import is_cpu
from fitserve.memory.resolve import Resolved
from fitserve.memory.weights.rank_weights import rank_weights
from fitserve.memory.weights.ranks import RankWeights
from fitserve.plan.asked import Asked
from fitserve.plan.request import Request, measured_terms, resolve_request
from fitserve.units import Quantity, Unknown, gib

_ASKED = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "enable_expert_parallel",
    "block_size",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "num_gpu_blocks_override",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "disable_hybrid_kv_cache_manager",
    "async_scheduling",
    "mamba_cache_mode",
    "mamba_block_size",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "language_model_only",
)
"""The settings that are told; those without a value are left to the engine's own defaults."""

_ALONE = (
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
)
"""Ways of dividing with which the first rank does not speak for all."""


def ask(
    request: Request, python: Path, version: str, *, timeout_seconds: float = ASK_SECONDS
) -> Asked | Unknown:
    """Ask an engine what the first rank of the start takes.

    Args:
        request: the question.
        python: the Python that the engine is installed in.
        version: the engine's release.
        timeout_seconds: what it may take.

    Raises:
        InputError: the configuration lacks a number.
        UsageError: a setting is wrong.
    """
    resolved = resolve_request(request)
    missing = _not_asked(request, resolved.options, version)
    if missing:
        return Unknown(missing)
    question = _question(request, resolved)
    if isinstance(question, Unknown):
        return question
    (answer,) = ask_engine(python, [question], timeout_seconds=timeout_seconds)
    if isinstance(answer, Unknown):
        return answer
    params = _params(answer, rank_weights(request.checkpoint, resolved.options))
    return Asked(answer=answer, options=resolved.options, param_bytes=params)


def compared(request: Request, asked: Asked) -> str:
    """What the memory model says beside the engine's answer, in one sentence."""
    answer, options = asked.answer, asked.options
    found = rank_weights(request.checkpoint, options)
    held = answer.param_bytes + answer.buffer_bytes
    if isinstance(found, Unknown):
        words = [f"no weights ({found.unknown})"]
    elif found[0].total_bytes != held:
        words = [f"{gib(found[0].total_bytes)} of weights instead of {gib(held)}"]
    else:
        words = []
    words += _compared_caches(request, answer, options)
    said = " and ".join(words) if words else "the same"
    taken = "weights and KV cache are" if asked.caches(options) else "weights are"
    return f"{taken} from {answer.source}; the memory model says {said}"


def _compared_caches(request: Request, answer: EngineAnswer, options: EngineOptions) -> list[str]:
    specs = layer_specs(request.checkpoint.config, options)
    if isinstance(specs, Unknown):
        return [f"no KV cache ({specs.unknown})"]
    for theirs in answer.caches[1:2]:
        ours = capacity(specs, options, theirs.kv_cache_bytes)
        if isinstance(ours, KvCache) and theirs.tokens != ours.tokens:
            return [f"{ours.tokens:,} tokens of KV cache instead of {theirs.tokens:,}"]
        if isinstance(ours, KvCache) == bool(theirs.refused):
            return [f"that the KV cache {'holds' if theirs.refused else 'does not hold'} one request"]
    return []


def _params(answer: EngineAnswer, ours: Sequence[RankWeights] | Unknown) -> Quantity:
    """The answer's parameters, as uncertain as the layout of the kernel that a real device would choose.

    The engine sees a pretended device with pretended kernels: where the memory model knows several layouts, it shows one.
    """
    size = answer.param_bytes
    known = None if isinstance(ours, Unknown) else ours[0].param_bytes
    if known is None or known.low == known.high:
        return Quantity.exact(size, "measured", answer.source)
    return Quantity(
        low=min(known.low, size),
        expected=size,
        high=max(known.high, size),
        basis="measured",
        source=f"{answer.source}, with any kernel",
    )


def _not_asked(request: Request, options: EngineOptions, version: str) -> str:
    """Why this question is not put to it; empty where it is."""
    reasons = (
        (request.checkpoint.format == "gguf", "a GGUF file has no configuration to build the model from"),
        (
            release(version) != release(options.vllm_version),
            f"the engine is vLLM {version}, the plan is for {options.vllm_version}",
        ),
        (options.num_speculative_tokens > 0, "drafted tokens are not asked about"),
        (options.lora is not None, "LoRA adapters are not asked about"),
        (
            options.num_redundant_experts > 0 or options.encoder.tp_mode != "weights",
            "copies of experts and encoders that share out items are not asked about",
        ),
    )
    for holds, reason in reasons:
        if holds:
            return reason
    for name in _ALONE:
        if getattr(options, name) != 1:
            return f"{name} {getattr(options, name)} is not asked about"
    return ""


def _question(request: Request, resolved: Resolved) -> Question | Unknown:
    config, options = request.checkpoint.config, resolved.options
    device = None if is_cpu(options.device) else _pretended(options.device)
    if isinstance(device, Unknown):
        return device
    nothing = Quantity.exact(0, "given", "no weights")
    empty = [
        RankWeights(rank=rank, param_bytes=nothing, buffer_bytes=nothing)
        for rank in range(options.tensor_parallel_size)
    ]
    measured = measured_terms(request, resolved)
    left = rank_budgets(config, resolved, empty, measured)[0].kv_cache_bytes
    is_open = resolved.auto_fit or options.cpu_offload_bytes > 0
    sizes = () if is_open or isinstance(left, Unknown) else (left.low, left.expected, left.high)
    is_fixed = options.kv_cache_memory_bytes is not None or "weights_bytes" in measured
    told = {name: getattr(options, name) for name in _ASKED}
    return Question(
        config=config.data,
        hf_quant=config.hf_quant,
        settings={name: value for name, value in told.items() if value is not None},
        device=device,
        kv_cache_bytes=sizes if is_fixed else (),
        shared_bytes=() if is_fixed else sizes,
    )


def _pretended(device: Device) -> PretendedDevice | Unknown:
    if device.compute_capability is None or device.multiprocessors is None:
        return Unknown(f"{device.name} is not asked about: its compute capability or its size is not known")
    return PretendedDevice(
        name=device.name,
        total_bytes=device.total_bytes,
        compute_capability=device.compute_capability,
        multiprocessors=device.multiprocessors,
    )
