"""What sequences take of the KV cache: blocks, pages, groups of layers; pure functions.

Source: ``v1/core/kv_cache_utils.py`` and ``v1/kv_cache_interface.py`` of vLLM 0.8.5 to 0.32.0.
"""

import math
from typing import Literal

import msgspec

from fitserve.simulator.models import Cache
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}
Kind = Literal["full", "sliding", "state"]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank's cache is divided.

    Attributes:
        groups: one block table each; the kind of its layers.
        block_size: tokens of a block.
        block_bytes: what one block takes over the layers of a group.
        window: of sliding layers, tokens.
        step_tokens: tokens that may be in flight beside a window.
        reserved_blocks: that no request gets.
        checked_groups: how many groups the check at the start counts.
        tokens_by_group: True where the printed size is divided by the groups.
    """

    groups: tuple[Kind, ...]
    block_size: int
    block_bytes: int
    window: int
    step_tokens: int
    reserved_blocks: int
    checked_groups: int
    tokens_by_group: bool

    def blocks_of(self, kind: Kind, tokens: int) -> int:
        """Blocks that a sequence of that many tokens takes in a group."""
        if kind == "state":
            return 1
        if kind == "sliding":
            return math.ceil(min(self.window - 1 + self.step_tokens, tokens) / self.block_size) + 1
        return math.ceil(tokens / self.block_size)

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks over all groups."""
        return sum(self.blocks_of(kind, tokens) for kind in self.groups)

    def needed_bytes(self, tokens: int) -> int:
        """What the check at the start asks for one request of that length."""
        counted = self.groups[: self.checked_groups]
        return (
            sum(self.blocks_of(kind, tokens) for kind in counted) + self.reserved_blocks
        ) * self.block_bytes

    def blocks(self, available_bytes: int) -> int:
        """How many blocks a cache has."""
        return max(available_bytes, 0) // self.block_bytes

    def longest(self, available_bytes: int, limit: int) -> int:
        """The longest request up to ``limit`` that fits; 0 where not one token does."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.needed_bytes(middle) <= available_bytes else (low, middle - 1)
        return low

    def concurrency(self, blocks: int, tokens: int) -> float:
        """How many requests of that length fit at once."""
        return blocks / max(self.blocks_per_request(tokens), 1)

    def shown_tokens(self, blocks: int, length: int, version: str) -> int:
        """The size that is printed, in tokens."""
        if at_least(version, "0.20.1"):
            return int(self.concurrency(blocks, length) * length)
        return (blocks // len(self.groups) if self.tokens_by_group else blocks) * self.block_size


def divide(cache: Cache, settings: Settings) -> Pool:
    """The pool of one rank."""
    version, stages = settings.version, settings.pipeline_parallel_size
    counts: dict[Kind, int] = {}
    for kind, layers in (("full", cache.full), ("sliding", cache.sliding), ("state", cache.state)):
        if layers:
            counts[kind] = math.ceil(layers / stages)  # type: ignore[index]
    if not at_least(version, "0.9.1") and "sliding" in counts:
        counts = {"full": sum(counts.values())}
    size = _group_size(list(counts.values()), version)
    token_bytes = layer_token_bytes(cache, settings)
    block = settings.block_size
    if cache.state:
        state = math.ceil(cache.state_bytes / settings.tensor_parallel_size)
        block = max(block, 16 * math.ceil(state / token_bytes / 16))
    groups = tuple(kind for kind, layers in counts.items() for _ in range(math.ceil(layers / size)))
    return Pool(
        groups=groups,
        block_size=block,
        block_bytes=block * token_bytes * size,
        window=cache.window,
        step_tokens=settings.max_num_batched_tokens * (2 if at_least(version, "0.26.0") else 1),
        reserved_blocks=1 if at_least(version, "0.29.0") else 0,
        checked_groups=1 if at_least(version, "0.14.0") and not at_least(version, "0.19.0") else len(groups),
        tokens_by_group=at_least(version, "0.9.1"),
    )


def _group_size(counts: list[int], version: str) -> int:
    least, most = min(counts), max(counts)
    ratio = 1.5 if at_least(version, "0.18.0") else 1.25
    return most if at_least(version, "0.12.0") and most < ratio * least else least


def layer_token_bytes(cache: Cache, settings: Settings) -> int:
    """What one layer of one rank keeps of a token."""
    element = 1 if settings.kv_cache_dtype.startswith("fp8") else _BYTES.get(settings.kv_cache_dtype, 2)
    if settings.kv_cache_dtype == "auto":
        element = _BYTES.get(settings.dtype, 2)
    if cache.latent:
        return cache.latent * element
    heads = max(1, cache.kv_heads // settings.tensor_parallel_size)
    return 2 * heads * cache.head_dim * element
