"""Would it start? The start of vLLM as arithmetic: a pure function from settings and free memory to an ending.

Source: ``v1/worker/gpu_worker.py``, ``worker/worker.py``, ``v1/core/kv_cache_utils.py`` of vLLM 0.7.3 to 0.32.0.
"""

import math
from collections.abc import Sequence

import msgspec

from fitserve.simulator.cache import Pool, divide
from fitserve.simulator.laws import Needs, needs
from fitserve.simulator.machine import Device
from fitserve.simulator.models import Model
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings

_SMALL_STEP = 0.25


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """How a start ends, and what it has found.

    Attributes:
        cause: why it fails; None where it serves.
        rank: the first rank that fails.
        taken: what each rank takes; free: of its device, before vLLM.
        requested_bytes: what the utilization allows.
        available_bytes: for the cache, by rank.
        asked_bytes: what the failing allocation asked for, and what was free then.
        blocks: of the cache.
        max_model_len: as vLLM has settled it.
        settled: at what the length was reduced, where vLLM chose it.
    """

    settings: Settings
    pool: Pool
    needs: Needs
    free: tuple[int, ...]
    total_bytes: int
    requested_bytes: int
    cause: str | None = None
    rank: int = 0
    available_bytes: int = 0
    needed_bytes: int = 0
    asked_bytes: int = 0
    free_then_bytes: int = 0
    blocks: int = 0
    max_model_len: int = 0
    left_bytes: int = 0

    @property
    def tokens(self) -> int:
        """The size of the cache as it is printed."""
        return self.pool.shown_tokens(self.blocks, self.max_model_len, self.settings.version)

    def step_bytes(self, tokens: int) -> int:
        """What a step of that many tokens takes beside the cache; the little that every step takes is always there."""
        share = min(tokens / self.settings.max_num_batched_tokens, 1.0)
        return int(self.needs.serving * share) if share > _SMALL_STEP else 0

    def at_once(self, tokens: int) -> int:
        """How many requests of that many tokens the cache holds at once."""
        usable = self.blocks - self.pool.reserved_blocks
        return usable // max(self.pool.blocks_per_request(tokens), 1)


def would_start(
    model: Model, settings: Settings, device: Device, free: Sequence[int], seed: int, *, change: int = 0
) -> Start:
    """How a start ends.

    Args:
        model: what is served.
        settings: resolved, and refused by nothing.
        device: of every rank.
        free: free bytes of each rank's device, before vLLM.
        seed: of the machine.
        change: bytes that others let go of (positive) while it profiles.
    """
    taken = needs(model, settings, device, seed)
    requested = device.total_bytes * settings.gpu_memory_utilization
    start = Start(
        settings=settings,
        pool=divide(model.cache, settings),
        needs=taken,
        free=tuple(free),
        total_bytes=device.total_bytes,
        requested_bytes=math.ceil(requested) if at_least(settings.version, "0.14.0") else int(requested),
        max_model_len=model.longest if settings.max_model_len == -1 else settings.max_model_len,
    )
    for rank, size in enumerate(free):
        failed = _load_and_profile(start, rank, size, change)
        if failed is not None:
            return failed
    start = msgspec.structs.replace(start, available_bytes=_available(start))
    return _serve(start, model.longest)


def _load_and_profile(start: Start, rank: int, size: int, change: int) -> Start | None:
    """The ending where a rank does not come to its cache; None where it does."""
    settings, taken = start.settings, start.needs
    free = size - taken.context
    checks = at_least(settings.version, "0.9.1") and settings.v1
    if free <= 0 or (checks and free < start.requested_bytes):
        return _fails(start, "gpu-memory-taken", rank, free_then=max(free, 0), asked=start.requested_bytes)
    if taken.weights > free:
        return _fails(start, "weights-do-not-fit", rank, free_then=free, asked=taken.weights)
    free -= taken.weights + taken.non_torch
    if taken.images > free:
        return _fails(start, "multimodal-profile-oom", rank, free_then=free, asked=taken.images)
    if taken.activation > free:
        return _fails(start, "profile-run-oom", rank, free_then=free, asked=taken.activation)
    if change > taken.weights + taken.non_torch and checks:
        return _fails(start, "gpu-memory-changed-while-profiling", rank, free_then=free + change)
    return None


def _available(start: Start) -> int:
    """Bytes for the cache: the least of all ranks."""
    settings, taken = start.settings, start.needs
    if settings.kv_cache_memory_bytes:
        return settings.kv_cache_memory_bytes
    own = taken.weights + taken.non_torch + taken.activation
    if settings.reserve_graphs and at_least(settings.version, "0.18.0"):
        own += taken.estimate
    if settings.v1 and not at_least(settings.version, "0.9.1"):
        own += start.total_bytes - min(start.free) + taken.context
    return start.requested_bytes - own


def _serve(start: Start, longest: int) -> Start:
    """From the cache's size to serving."""
    settings, pool = start.settings, start.pool
    available = start.available_bytes
    blocks = pool.blocks(available)
    if settings.num_gpu_blocks_override:
        blocks = settings.num_gpu_blocks_override
        if at_least(settings.version, "0.20.1"):
            available = blocks * pool.block_bytes
    start = msgspec.structs.replace(start, available_bytes=available, blocks=blocks)
    if settings.max_model_len == -1:
        fitted = pool.longest(available, longest)
        if fitted == 0:
            return _fails(start, "no-kv-cache-blocks", 0)
        start = msgspec.structs.replace(start, max_model_len=fitted)
    start = msgspec.structs.replace(start, needed_bytes=pool.needed_bytes(start.max_model_len))
    if available <= 0:
        eaten = settings.reserve_graphs and available + start.needs.estimate > 0
        return _fails(start, "graph-estimate-too-large" if eaten else "no-kv-cache-blocks", 0)
    if start.needed_bytes > available:
        pinned = settings.kv_cache_memory_bytes or settings.num_gpu_blocks_override
        return _fails(start, "kv-cache-pinned-too-small" if pinned else "kv-cache-smaller-than-context", 0)
    return _allocate(start)


def _allocate(start: Start) -> Start:
    """The cache, the graphs, the sampler: what is really there."""
    taken, cache = start.needs, start.blocks * start.pool.block_bytes
    for rank, size in enumerate(start.free):
        left = size - taken.context - taken.weights - taken.non_torch
        if cache > left:
            return _fails(start, "kv-allocation-oom", rank, free_then=left, asked=cache)
        left -= cache
        if _captures_states(start) and start.settings.max_num_seqs > start.blocks:
            return _fails(start, "state-cache-too-small", rank, free_then=left)
        if taken.graphs > left:
            return _fails(start, "graph-capture-oom", rank, free_then=left, asked=taken.graphs)
        left -= taken.graphs
        if taken.sampler > left and start.settings.v1:
            return _fails(start, "sampler-warmup-oom", rank, free_then=left, asked=taken.sampler)
        smallest = left if rank == 0 else min(start.left_bytes, left)
        start = msgspec.structs.replace(start, left_bytes=smallest)
    return start


def _captures_states(start: Start) -> bool:
    """True where each sequence of a captured batch needs a state of its own (0.20 and newer)."""
    return (
        "state" in start.pool.groups and at_least(start.settings.version, "0.20.0") and start.needs.graphs > 0
    )


def _fails(start: Start, cause: str, rank: int, *, free_then: int = 0, asked: int = 0) -> Start:
    return msgspec.structs.replace(
        start, cause=cause, rank=rank, free_then_bytes=max(free_then, 0), asked_bytes=asked
    )
