"""An engine's answer in the words of the memory model."""

from typing import TYPE_CHECKING

import msgspec

from fitserve.memory.kv import KvCache, KvGroup, Refusal
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.ranks import RankWeights
from fitserve.units import Quantity

if TYPE_CHECKING:
    from fitserve.facts.ask_engine import EngineAnswer, EngineCache, EngineLayers

_DECIDE_WEIGHTS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "dtype",
    "quantization",
    "language_model_only",
)
_GROWING = ("full", "mla")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine answered, and about which settings it was asked.

    Attributes:
        answer: the answer for the first rank.
        options: the settings.
        param_bytes: the parameters; an interval where the kernels that the real device chooses may lay them out differently.
    """

    answer: "EngineAnswer"
    options: EngineOptions
    param_bytes: Quantity

    def weights(self, options: EngineOptions) -> tuple[RankWeights, ...] | None:
        """Every rank's weights: as the first one's, which holds the most; None where the settings divide them differently."""
        if any(getattr(options, name) != getattr(self.options, name) for name in _DECIDE_WEIGHTS):
            return None
        buffers = Quantity.exact(self.answer.buffer_bytes, "measured", self.answer.source)
        return tuple(
            RankWeights(rank=rank, param_bytes=self.param_bytes, buffer_bytes=buffers)
            for rank in range(options.tensor_parallel_size)
        )

    def caches(self, options: EngineOptions) -> tuple[KvCache | Refusal, ...] | None:
        """The cache with the least, the expected and the most memory; None where that is not what was asked.

        It was asked for these settings alone, and for weights of one size.
        """
        if self.param_bytes.low != self.param_bytes.high:
            return None
        if options != self.options or len(self.answer.caches) != 3:
            return None
        return tuple(_cache(one, options) for one in self.answer.caches)


def _cache(found: "EngineCache", options: EngineOptions) -> KvCache | Refusal:
    if found.refused:
        return _refusal(found, options)
    tokens = sum(
        -(-found.bytes_per_block // group.block_size) for group in found.groups if group.kind in _GROWING
    )
    return KvCache(
        block_size=min(group.block_size for group in found.groups),
        num_blocks=found.num_blocks,
        tokens=found.tokens,
        bytes_per_block=found.bytes_per_block,
        bytes_per_token=tokens,
        max_concurrency=found.max_concurrency,
        groups=tuple(_group(group) for group in found.groups),
        max_model_len_that_fits=found.longest,
    )


def _group(group: "EngineLayers") -> KvGroup:
    return msgspec.convert(msgspec.to_builtins(group), KvGroup)


def _refusal(found: "EngineCache", options: EngineOptions) -> Refusal:
    """The refusal under its cause's id: with the bytes that one request needs, too few of them; else no block at all."""
    pinned = options.kv_cache_memory_bytes is not None or options.num_gpu_blocks_override is not None
    if not found.needed_bytes:
        cause = "no-kv-cache-blocks" if "No available memory" in found.refused else "kv-pages-not-unifiable"
    else:
        cause = "kv-cache-pinned-too-small" if pinned else "kv-cache-smaller-than-context"
    return Refusal(
        cause=cause,
        needed_bytes=found.needed_bytes,
        available_bytes=found.kv_cache_bytes,
        estimated_max_model_len=found.longest or 0,
        max_model_len=options.max_model_len or 0,
    )
