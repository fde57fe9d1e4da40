"""What vLLM refuses before and besides the KV cache, in the order in which a start reaches it."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig
from fitserve.memory.available import refused_architecture
from fitserve.memory.batch import chunks_long_contexts
from fitserve.memory.budget import RankBudget
from fitserve.memory.history import at_least
from fitserve.memory.overhead.cpu import is_cpu
from fitserve.memory.overhead.non_torch import own_non_torch
from fitserve.memory.resolve import Resolved, is_multimodal
from fitserve.plan.refusals import refusals
from fitserve.units import Quantity, Size, gib

_AMPERE = (8, 0)
_VOLTA = (7, 0)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that keeps a start from succeeding.

    Attributes:
        cause: its id.
        message: one sentence with the numbers.
        sure: it happens at every value that is likely; False where only at some.
        expected: it happens at the expected values.
    """

    cause: str
    message: str
    sure: bool
    expected: bool


def config_problems(config: ModelConfig, resolved: Resolved, gpus: int | None) -> Iterator[Problem]:
    """What vLLM refuses by the settings alone.

    Source: ``config/model.py``, ``config/scheduler.py``, ``config/parallel.py`` of vLLM 0.32.
    """
    for check in (_options, _architecture, _context, _devices, _heads, _batch, _dtype):
        found = check(config, resolved, gpus)
        if found is not None:
            cause, message = found
            yield Problem(cause=cause, message=message, sure=True, expected=True)
    for cause, message in refusals(config, resolved):
        yield Problem(cause=cause, message=message, sure=True, expected=True)


def memory_problems(resolved: Resolved, ranks: Sequence[RankBudget]) -> Iterator[Problem]:
    """What the device's memory does not hold, besides the KV cache's own rules."""
    for check in (_taken, _weights, _profile, _allocation, _capture):
        for rank in ranks:
            problem = check(resolved, rank)
            if problem is not None:
                yield problem
                break


def serving_problem(resolved: Resolved, ranks: Sequence[RankBudget]) -> Problem | None:
    """What a started server has no memory for: a full step beside cache and graphs, whose room is not reserved.

    No start fails of it: the first long prompt does, or where the sampler is warmed up that.
    """
    if is_cpu(resolved.options.device):
        return None
    words = "weights, KV cache, captured graphs and a full step are larger than the device"
    found = (
        _beside_cache("serving-oom", resolved, rank, (rank.captured_bytes, rank.step_bytes), words)
        for rank in ranks
    )
    return next((problem for problem in found if problem is not None), None)


def has_margin(resolved: Resolved, ranks: Sequence[RankBudget]) -> bool:
    """True where a full step has room even if all needs lie half way between the expected and the most."""
    for rank in ranks:
        need = _need_beside(resolved, rank, (rank.captured_bytes, rank.step_bytes))
        if need is not None and need(_half_way) > _available(rank, _half_way):
            return False
    return True


def _options(_config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    return ("unknown-flag", resolved.refused[0]) if resolved.refused else None


def _architecture(config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    message = refused_architecture(config.architecture, resolved.options.vllm_version)
    return None if message is None else ("architecture-unsupported", message)


def _devices(_config: ModelConfig, resolved: Resolved, gpus: int | None) -> tuple[str, str] | None:
    options = resolved.options
    needed = options.tensor_parallel_size * options.pipeline_parallel_size * options.data_parallel_size
    needed *= options.prefill_context_parallel_size
    if gpus is None or needed <= gpus:
        return None
    return "not-enough-gpus", f"{needed} devices are asked for, there are {gpus}"


def _context(_config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    asked = resolved.options.max_model_len or 0
    if asked <= resolved.context.limit or resolved.allows_long:
        return None
    message = (
        f"max_model_len {asked:,} is above the model's {resolved.context.limit:,} ({resolved.context.source})"
    )
    return "context-beyond-model-limit", message


def _heads(config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    tp = resolved.options.tensor_parallel_size
    try:
        heads = config.integer("num_attention_heads", "n_head", "n_heads", default=0)
    except InputError:
        return None
    if heads % tp == 0:
        return None
    return "heads-not-divisible", f"{heads} attention heads are not divisible by tensor_parallel_size {tp}"


def _batch(config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    options = resolved.options
    tokens, length = options.max_num_batched_tokens, options.max_model_len or 0
    if tokens < options.max_num_seqs:
        message = f"max_num_batched_tokens {tokens:,} is below max_num_seqs {options.max_num_seqs:,}"
        return "batched-tokens-below-context", message
    chunked = options.enable_chunked_prefill
    if chunked is None:
        chunked = resolved.is_v1 or chunks_long_contexts(
            options.vllm_version, length, is_multimodal=is_multimodal(config)
        )
    if chunked or tokens >= length:
        return None
    message = f"max_num_batched_tokens {tokens:,} is below max_model_len {length:,} without chunked prefill"
    return "batched-tokens-below-context", message


def _dtype(_config: ModelConfig, resolved: Resolved, _gpus: int | None) -> tuple[str, str] | None:
    options = resolved.options
    capability = options.device.compute_capability
    if capability is None:
        return None
    if options.dtype == "bfloat16" and capability < _AMPERE:
        return (
            "dtype-unsupported",
            f"bfloat16 needs compute capability 8.0, {options.device.name} has {_dotted(capability)}",
        )
    if capability < _VOLTA and at_least(options.vllm_version, "0.11.0"):
        return (
            "cuda-driver-mismatch",
            f"vLLM's kernels need compute capability 7.0, {options.device.name} has {_dotted(capability)}",
        )
    return None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _available(rank: RankBudget, choose: Callable[[Quantity], int]) -> int:
    """What the device has left when vLLM first looks."""
    used = rank.used_before_bytes
    return max(0, rank.total_bytes - (choose(used) if isinstance(used, Quantity) else 0))


def _low(size: Quantity) -> int:
    return size.low


def _expected(size: Quantity) -> int:
    return size.expected


def _high(size: Quantity) -> int:
    return size.high


def _half_way(size: Quantity) -> int:
    return (size.expected + size.high) // 2


def _compared(
    cause: str, rank: RankBudget, needed: Callable[[Callable[[Quantity], int]], int], words: str
) -> Problem | None:
    """A need against what the device has left: at the least, the expected and the most that is likely."""
    if needed(_high) <= _available(rank, _high):
        return None
    is_expected = needed(_expected) > _available(rank, _expected)
    # The figures are those of the case that is told: an expected lack, or one at the far end of what is likely.
    choose = _expected if is_expected else _high
    return Problem(
        cause=cause,
        message=f"{words}: {gib(needed(choose))} needed, {gib(_available(rank, choose))} there",
        sure=needed(_low) > _available(rank, _low),
        expected=is_expected,
    )


def _total(*sizes: object) -> Callable[[Callable[[Quantity], int]], int]:
    known = [size for size in sizes if isinstance(size, Quantity)]
    return lambda choose: sum(choose(size) for size in known)


def checks_free_memory(resolved: Resolved) -> bool:
    """True where a start first looks whether its share is free: from 0.9.1 on; not on the CPU with a given cache, nor there from 0.33 on.

    Source: ``request_memory`` in ``v1/worker/utils.py``.
    """
    options = resolved.options
    if not resolved.is_v1 or not at_least(options.vllm_version, "0.9.1"):
        return False
    pinned = options.kv_cache_memory_bytes is not None
    return not is_cpu(options.device) or not (pinned or at_least(options.vllm_version, "0.33.0"))


def _taken(resolved: Resolved, rank: RankBudget) -> Problem | None:
    if not checks_free_memory(resolved):
        return None
    words = f"free memory is below gpu_memory_utilization {resolved.options.gpu_memory_utilization}"
    return _compared("gpu-memory-taken", rank, lambda _choose: rank.requested_bytes, words)


def _weights(_resolved: Resolved, rank: RankBudget) -> Problem | None:
    return _compared(
        "weights-do-not-fit", rank, _total(rank.weights_bytes), "the weights are larger than the device"
    )


def _profile(_resolved: Resolved, rank: RankBudget) -> Problem | None:
    need = _total(rank.weights_bytes, rank.allocator_bytes, rank.activation_bytes)
    return _compared("profile-run-oom", rank, need, "weights and activations are larger than the device")


def _allocation(resolved: Resolved, rank: RankBudget) -> Problem | None:
    """The cache is allocated without a look at what is free: too large where it was given, or where others hold memory."""
    cause = "host-memory-exhausted" if is_cpu(resolved.options.device) else "kv-allocation-oom"
    return _beside_cache(cause, resolved, rank, (), "weights and KV cache are larger than the device")


def _capture(resolved: Resolved, rank: RankBudget) -> Problem | None:
    """Graphs are captured beside weights and cache; what the activations had is free then."""
    words = "weights, KV cache and captured graphs are larger than the device"
    return _beside_cache("graph-capture-oom", resolved, rank, (rank.captured_bytes,), words)


def _beside_cache(
    cause: str, resolved: Resolved, rank: RankBudget, sizes: tuple[Size, ...], words: str
) -> Problem | None:
    """What is needed beside weights and cache, against the device."""
    need = _need_beside(resolved, rank, sizes)
    return None if need is None else _compared(cause, rank, need, words)


def _need_beside(
    resolved: Resolved, rank: RankBudget, sizes: tuple[Size, ...]
) -> Callable[[Callable[[Quantity], int]], int] | None:
    """Weights, cache and what comes beside them; None without a cache."""
    cache = rank.kv_cache_bytes
    if not isinstance(cache, Quantity) or cache.expected <= 0:
        return None
    outside = own_non_torch(rank.non_torch_bytes, rank.used_before_bytes, resolved)
    fixed = _total(rank.weights_bytes, rank.allocator_bytes, outside, *sizes)
    # What the terms need more the cache has less, so its size counts as expected.
    return lambda choose: fixed(choose) + cache.expected
