"""How many pages a request takes of a layer.

Source: ``max_memory_usage_bytes`` of every spec in ``v1/kv_cache_interface.py``, vLLM 0.9.1 to 0.33.0.
"""

from fitserve.memory.history import at_least
from fitserve.memory.kv.rules import Rules
from fitserve.memory.kv.values import LayerSpec
from fitserve.memory.options import EngineOptions


def ceil_div(amount: int, part: int) -> int:
    """The smallest whole number of parts that holds the amount."""
    return -(-amount // part)


def round_up(amount: int, part: int) -> int:
    """The smallest multiple of the part that holds the amount."""
    return ceil_div(amount, part) * part


def on_cpu(options: EngineOptions) -> bool:
    """True for vLLM's CPU backend, which never schedules ahead."""
    return options.device.compute_capability is None and "cpu" in options.device.name.lower()


def _drafts_from_text(options: EngineOptions) -> bool:
    """Such drafts turn asynchronous scheduling off."""
    return options.num_speculative_tokens > 0 and options.speculative_method in ("ngram", "suffix")


def context_parallel(options: EngineOptions, rules: Rules) -> int:
    """How many ranks share the tokens of one request."""
    shards = options.decode_context_parallel_size
    return shards * options.prefill_context_parallel_size if rules.prefill_context else shards


def in_flight_tokens(options: EngineOptions, rules: Rules) -> int:
    """Tokens that may be scheduled before a window frees its first block.

    With batches in flight (asynchronous scheduling, pipeline stages) each of them may be full.

    Source: ``VllmConfig.max_in_flight_tokens`` and ``max_concurrent_batches``, vLLM 0.26 to 0.33.
    """
    if not rules.in_flight_batches:
        return options.max_num_batched_tokens
    stages = options.pipeline_parallel_size
    batches = stages
    if options.async_scheduling is not False and not on_cpu(options) and not _drafts_from_text(options):
        batches = stages + 1 if stages == 1 or at_least(options.vllm_version, "0.29.0") else stages
    return batches * options.max_num_batched_tokens


def request_pages(spec: LayerSpec, tokens: int, in_flight: int, shards: int) -> int:
    """Pages of one layer for one request.

    Args:
        spec: the layer.
        tokens: the request's length.
        in_flight: tokens that may be scheduled at once.
        shards: ranks that share a request's tokens.
    """
    if spec.state_pages is not None:
        return spec.state_pages
    if spec.kind == "sliding":
        return ceil_div(min((spec.window or 1) - 1 + in_flight, tokens), spec.block_size) + 1
    if spec.kind == "cross":
        return ceil_div(spec.window or 0, spec.block_size)
    if spec.kind == "chunked":
        return ceil_div(min((spec.window or 1) + in_flight, tokens), spec.block_size)
    return ceil_div(ceil_div(tokens, shards), spec.block_size) + spec.extra_pages
