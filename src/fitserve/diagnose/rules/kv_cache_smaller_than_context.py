"""One sequence of ``max_model_len`` does not fit into the KV cache.

Source: vLLM 0.2.7 to 0.33.0. V0 compares blocks (``worker/worker.py``, ``raise_if_cache_size_invalid``), V1 compares
bytes (``v1/core/kv_cache_utils.py``, ``check_enough_kv_cache_memory``).
"""

from fitserve.diagnose.arithmetic import (
    block_size,
    bytes_of,
    difference,
    is_pinned,
    raise_utilization,
    whole_blocks,
)
from fitserve.diagnose.finding import Advice, NotAdvised
from fitserve.diagnose.rules import graph_estimate_too_large, kv_cache_pinned_too_small
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.memory.history import at_least
from fitserve.units import Quantity, gib

CAUSE = "kv-cache-smaller-than-context"
STAGE = "kv_cache"


def judge(situation: Situation) -> Finding:
    """Name what one sequence needs and what there is, and the length that fits."""
    if is_pinned(situation):
        return kv_cache_pinned_too_small.judge(situation)
    if graph_estimate_too_large.has_eaten_the_cache(situation):
        return graph_estimate_too_large.judge(situation)
    advice, not_advised = raise_or_not(situation)
    advice = [
        *advice,
        *shorter_context(situation),
        *_chunked_prefill(situation),
        *_halved_cache(situation),
        *_more_ranks(situation),
    ]
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message(situation),
        event=situation.event,
        advice=advice,
        not_advised=[*not_advised, _eager()],
    )


def message(situation: Situation) -> str:
    """What is needed and what is there."""
    length = situation.number("max_model_len")
    needed, available = bytes_of(situation, "needed_gib"), bytes_of(situation, "available_gib")
    if needed and available:
        return f"max_model_len {length:,} needs {gib(needed.expected)} of KV cache, {gib(available.expected)} is available"
    tokens = situation.number("kv_tokens")
    return f"max_model_len {length:,} is more than the {tokens or 0:,} tokens that the KV cache holds"


def raise_or_not(situation: Situation) -> tuple[list[Advice], list[NotAdvised]]:
    """A higher utilization, if the device has what is missing."""
    needed, available = bytes_of(situation, "needed_gib"), bytes_of(situation, "available_gib")
    if needed and available:
        return raise_utilization(situation, difference(needed, available))
    tokens, length = situation.number("kv_tokens"), situation.number("max_model_len")
    kept = situation.ledger.kv_cache_bytes
    if not tokens or not length or not isinstance(kept, Quantity):
        return [], []
    needed_bytes = Quantity(
        low=kept.low * length // tokens,
        expected=kept.expected * length // tokens,
        high=kept.high * length // tokens,
        basis="computed",
        source=kept.source,
    )
    return raise_utilization(situation, difference(needed_bytes, kept))


def fitting_tokens(situation: Situation) -> tuple[int, str] | None:
    """The longest context that the cache holds for certain, in whole blocks, and the arithmetic.

    vLLM's own estimate counts every kind of layer, and the block that it keeps back from 0.29.0 on, and is preferred.
    Without it the cache is taken as proportional to the context, which holds for models with full attention only.
    """
    block = block_size(situation)
    estimate = situation.number("estimated_max_model_len")
    if estimate:
        tokens = whole_blocks(estimate, block)
        return tokens, f"vLLM estimates {estimate:,}; in whole blocks of {block}"
    if tokens := situation.number("kv_tokens"):
        return whole_blocks(tokens, block), f"the cache holds {tokens:,} tokens"
    needed, available = bytes_of(situation, "needed_gib"), bytes_of(situation, "available_gib")
    if not needed or not available or available.low <= 0 or situation.case.is_hybrid:
        return None
    length = situation.number("max_model_len")
    tokens = whole_blocks(length * available.low / needed.high, block)
    return tokens, f"{length:,} x {gib(available.low)} / {gib(needed.high)}, in whole blocks of {block}"


def shorter_context(situation: Situation) -> list[Advice]:
    """A context that fits."""
    if (fitting := fitting_tokens(situation)) is None or fitting[0] < 1:
        return []
    tokens, why = fitting
    stages = situation.case.whole("pipeline_parallel_size") or 1
    if stages > 1 and not at_least(situation.version, "0.17.0"):
        why += f"; this version counts the layers of all {stages} stages against one stage's memory"
    return change(
        situation,
        "max_model_len",
        tokens,
        "down",
        "capacity",
        why,
        predicted={"max_model_len": tokens},
    )


def _chunked_prefill(situation: Situation) -> list[Advice]:
    """V0 without chunked prefill profiles a batch as long as the context, and that eats the cache."""
    tokens = situation.case.whole("max_num_batched_tokens")
    if situation.case.engine == "V1" or situation.number("kv_tokens") is None or situation.case.is_cpu:
        return []
    if situation.boot.seen("chunked-prefill") or (tokens and tokens <= 2048):
        return []
    length = situation.number("max_model_len")
    why = f"without it the profile run is {length:,} tokens long, and its activations come out of the cache"
    return change(situation, "enable_chunked_prefill", True, "set", "speed", why)


def _halved_cache(situation: Situation) -> list[Advice]:
    needed, available = bytes_of(situation, "needed_gib"), bytes_of(situation, "available_gib")
    if not needed or not available or needed.high / 2 > available.low or situation.case.is_hybrid:
        return []
    if not at_least(situation.version, "0.4.1") or situation.case.value("kv_cache_dtype") not in (
        None,
        "auto",
    ):
        return []
    why = f"half of {gib(needed.expected)} fits into {gib(available.expected)}; answers may change"
    return change(situation, "kv_cache_dtype", "fp8", "set", "output", why)


def _more_ranks(situation: Situation) -> list[Advice]:
    ranks = situation.case.whole("tensor_parallel_size") or 1
    if situation.case.is_cpu:
        return []
    why = f"each of {ranks * 2} devices then holds half of the weights and of the cache's heads"
    return change(situation, "tensor_parallel_size", ranks * 2, "up", "hardware", why)


def _eager() -> NotAdvised:
    return avoid("enforce_eager", "set", "the failure comes before any CUDA graph is captured")
