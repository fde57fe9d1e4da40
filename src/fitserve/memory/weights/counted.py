"""A checkpoint's weights for many settings: counted again only where what decides them differs."""

from typing import Any

from fitserve.facts.checkpoint import Checkpoint
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.rank_weights import loaded_bytes, rank_weights
from fitserve.memory.weights.ranks import RankWeights
from fitserve.units import Unknown

INDIFFERENT = frozenset(
    {
        "max_model_len",
        "gpu_memory_utilization",
        "decode_context_parallel_size",
        "block_size",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "disable_hybrid_kv_cache_manager",
        "async_scheduling",
        "enforce_eager",
        "max_cudagraph_capture_size",
        "mamba_cache_mode",
        "mamba_block_size",
        "mamba_cache_dtype",
        "mamba_ssm_cache_dtype",
        "cpu_offload_bytes",
        "offload_group_size",
        "offload_num_in_group",
        "offload_prefetch_step",
    }
)
"""Settings that no weight depends on; one that is not named here decides."""

INDIFFERENT_WITHOUT_ADAPTERS = frozenset({"max_num_seqs", "max_num_batched_tokens"})
"""Adapters keep tables of a batch's tokens and sequences."""

_FIELDS = EngineOptions.__struct_fields__
_WITH_ADAPTERS = tuple(name for name in _FIELDS if name not in INDIFFERENT)
_WITHOUT = tuple(name for name in _WITH_ADAPTERS if name not in INDIFFERENT_WITHOUT_ADAPTERS)


class CountedWeights:
    """The weights of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._held: int | None = None
        self._found: list[tuple[tuple[Any, ...], tuple[RankWeights, ...] | Unknown]] = []

    def of(self, options: EngineOptions) -> tuple[RankWeights, ...] | Unknown:
        """As ``rank_weights`` counts them.

        Raises:
            InputError: the configuration lacks a number or has an absurd one.
        """
        names = _WITHOUT if options.lora is None else _WITH_ADAPTERS
        key = tuple(getattr(options, name) for name in names)
        for known, weights in self._found:
            if known == key:
                return weights
        if self._held is None:
            self._held = loaded_bytes(self._checkpoint)
        weights = rank_weights(self._checkpoint, options, self._held)
        self._found.append((key, weights))
        return weights
