"""The values that each move would try, the smallest change first. What they do is judged by whoever asks."""

from collections.abc import Iterator
from math import ceil, floor
from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.memory.history import at_least, has_flag, reserves_graphs
from fitserve.memory.kv import KvCache, Refusal
from fitserve.memory.overhead.non_torch import own_non_torch
from fitserve.memory.resolve import is_multimodal
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Scene
from fitserve.plan.request import judge_request
from fitserve.units import GIB, MIB, Quantity, Size

HIGHEST_SHARE = 0.95
"""Above it, what vLLM does not count no longer finds room beside the cache."""

NODE_DEVICES = 8
"""Devices that may be asked for where it is not known how many there are."""

_LOWEST_SHARE = 0.3
_SPARE_BYTES = 128 * MIB
_FEWEST_TOKENS = 512
_FEWEST_SEQUENCES = 8
"""Without a goal: fewer share a device badly. Chosen, not measured."""
_FP8_CACHE = (8, 9)
"""The compute capability from which every default backend takes an fp8 cache."""

_ALIGN = 16
_GRAPH_SIZES = (256, 128, 64, 32, 16, 8)
_BLOCK_SIZES = (16, 32, 64, 128)
_PIXELS = 1_003_520
_SMALLER_PINS = (0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)
_STATE_KEYS = (
    "linear_num_key_heads",
    "mamba_d_state",
    "ssm_state_size",
    "mamba_num_heads",
    "layers_block_type",
)


def free_share(scene: Scene) -> float:
    """The largest share of the device that is likely to be free at the start, in hundredths."""
    rank = scene.base.ranks[0]
    used = rank.used_before_bytes
    taken = used.high if isinstance(used, Quantity) else 0
    return floor(min(HIGHEST_SHARE, (rank.total_bytes - taken - _SPARE_BYTES) / rank.total_bytes) * 100) / 100


def higher_shares(scene: Scene) -> Iterator[float]:
    """Larger shares in hundredths, up to what is likely to be free."""
    options = scene.base.resolved.options
    if options.kv_cache_memory_bytes is not None:
        return
    yield from _hundredths(floor(options.gpu_memory_utilization * 100) + 1, round(free_share(scene) * 100))


def lower_shares(scene: Scene) -> Iterator[float]:
    """Smaller shares in hundredths, from what is likely to be free beside the graphs downwards."""
    options = scene.base.resolved.options
    if options.kv_cache_memory_bytes is not None:
        return
    free = free_share(scene) - _beside_share(scene) / scene.base.ranks[0].total_bytes
    most = min(ceil(options.gpu_memory_utilization * 100) - 1, floor(free * 100))
    for hundredth in range(most, round(_LOWEST_SHARE * 100) - 1, -1):
        yield hundredth / 100


def _beside_share(scene: Scene) -> float:
    """What graphs and a step take that the share does not hold: half way between the expected and the most, which is a choice."""
    rank = scene.base.ranks[0]
    graphs = _half_way(rank.captured_bytes) - _expected(rank.cuda_graph_bytes)
    step = _half_way(rank.step_bytes) - _half_way(rank.activation_bytes)
    return max(0, graphs) + max(0, step)


def _expected(size: Size) -> int:
    return size.expected if isinstance(size, Quantity) else 0


def _half_way(size: Size) -> float:
    return (size.expected + size.high) / 2 if isinstance(size, Quantity) else 0


def _hundredths(first: int, last: int) -> Iterator[float]:
    for hundredth in range(first, last + 1):
        yield hundredth / 100


def contexts(scene: Scene) -> Iterator[int]:
    """The goal's context; without a goal the longest that fits, and halves of what is asked for."""
    now = scene.base.resolved.options.max_model_len or 0
    goal = scene.request.goal.context
    if goal is not None:
        if goal != now:
            yield goal
        return
    seen = {now}
    for length in (scene.base.resolved.context.limit, *_fitting(scene), *(now >> n for n in range(1, 7))):
        whole = length // _ALIGN * _ALIGN
        if 0 < whole < now and whole not in seen:
            seen.add(whole)
            yield whole


def _fitting(scene: Scene) -> Iterator[int]:
    """The longest context with the least memory that is likely, then with the expected."""
    for cache in scene.base.caches[:2]:
        if isinstance(cache, KvCache):
            yield min(cache.max_model_len_that_fits or 0, scene.base.resolved.context.limit)
        elif isinstance(cache, Refusal):
            yield min(cache.estimated_max_model_len, scene.base.resolved.context.limit)


def goal_context(scene: Scene) -> Iterator[int]:
    """The goal's context, where less is allowed now."""
    now, goal = scene.base.resolved.options.max_model_len or 0, scene.request.goal.context
    if goal is not None and goal > now:
        yield goal


def profiled_contexts(scene: Scene) -> Iterator[int]:
    """The same, where the profile run is as long as the context."""
    if not _cuts_prompts(scene):
        yield from contexts(scene)


def fewer_sequences(scene: Scene) -> Iterator[int]:
    """Halves of ``max_num_seqs`` as powers of two, not below the goal, nor to a handful where there is none."""
    now = scene.base.resolved.options.max_num_seqs
    yield from _powers_below(now, scene.request.goal.concurrency or _FEWEST_SEQUENCES)


def more_sequences(scene: Scene) -> Iterator[int]:
    """The goal's number of requests, where fewer may run."""
    goal = scene.request.goal.concurrency
    if goal is not None and goal > scene.base.resolved.options.max_num_seqs:
        yield goal


def larger_batches(scene: Scene) -> Iterator[int]:
    """Enough tokens for every sequence, and for the longest prompt where prompts are not cut up."""
    options = scene.base.resolved.options
    needed = max(options.max_num_seqs, 0 if _cuts_prompts(scene) else options.max_model_len or 0)
    if needed > options.max_num_batched_tokens:
        yield needed


def _cuts_prompts(scene: Scene) -> bool:
    resolved = scene.base.resolved
    asked = resolved.options.enable_chunked_prefill
    return resolved.is_v1 if asked is None else asked


def fewer_tokens(scene: Scene) -> Iterator[int]:
    """Smaller batches as powers of two: not below the sequences, nor below the context where prompts are not cut up."""
    options = scene.base.resolved.options
    least = max(_FEWEST_TOKENS, options.max_num_seqs)
    if not _cuts_prompts(scene):
        least = max(least, options.max_model_len or 0)
    yield from _powers_below(options.max_num_batched_tokens, least)


def _powers_below(now: int, least: int) -> Iterator[int]:
    power = 1 << max(0, (now - 1).bit_length() - 1)
    while power >= least:
        if power < now:
            yield power
        power >>= 1


def chunked_prefill(scene: Scene) -> Iterator[bool]:
    """On, where the old engine runs without it."""
    resolved = scene.base.resolved
    if not resolved.is_v1 and not resolved.options.enable_chunked_prefill:
        yield True


def eager(scene: Scene) -> Iterator[bool]:
    """On, where graphs are captured."""
    if not scene.base.resolved.options.enforce_eager:
        yield True


def smaller_graphs(scene: Scene) -> Iterator[int]:
    """Smaller largest batches to capture."""
    options = scene.base.resolved.options
    largest = 0 if options.enforce_eager else options.max_cudagraph_capture_size or 0
    yield from (size for size in _GRAPH_SIZES if size < largest)


def fewer_graphs_by_list(scene: Scene) -> Iterator[str]:
    """The same in releases that take a list of sizes or the largest one as ``cuda_graph_sizes``."""
    if not has_flag("max_cudagraph_capture_size", scene.request.version):
        yield from (str(size) for size in smaller_graphs(scene))


def no_graph_estimate(scene: Scene) -> Iterator[str]:
    """Off, where the estimate is taken from the cache."""
    if reserves_graphs(scene.request.version, scene.base.resolved.estimates_graphs):
        yield "0"


def pinned_bytes(scene: Scene) -> Iterator[int]:
    """A size of the cache that holds the goal, in whole MiB; only in place of one that was set by hand."""
    if scene.request.given.get("kv_cache_memory_bytes") is None:
        return
    now = scene.base.resolved.options.kv_cache_memory_bytes or 0
    needed = _needed_bytes(scene)
    if needed is not None and needed > now:
        whole = ceil(needed / MIB) * MIB
        yield whole
        cache = judge_request(scene.request, {"kv_cache_memory_bytes": whole}).cache
        if isinstance(cache, KvCache):
            # V1 never hands out one of its blocks.
            yield ceil((needed + cache.bytes_per_block) / MIB) * MIB
        yield ceil(needed * 1.05 / MIB) * MIB


def smaller_pins(scene: Scene) -> Iterator[int]:
    """Smaller sizes in place of one that was set by hand, in whole MiB."""
    now, room = scene.request.given.get("kv_cache_memory_bytes"), _room_for_cache(scene)
    if isinstance(now, int):
        sizes = {room, *(now * share for share in _SMALLER_PINS)}
        yield from (int(size) // MIB * MIB for size in sorted(sizes, reverse=True) if 0 < size < now)


def _room_for_cache(scene: Scene) -> float:
    """What the device has for a cache where weights, graphs and a step need more than expected, half way to the most."""
    rank = scene.base.ranks[0]
    outside = own_non_torch(rank.non_torch_bytes, rank.used_before_bytes, scene.base.resolved)
    others = (rank.weights_bytes, rank.allocator_bytes, outside, rank.captured_bytes, rank.step_bytes)
    return rank.total_bytes - _half_way(rank.used_before_bytes) - sum(map(_half_way, others))


def unpinned_bytes(scene: Scene) -> Iterator[None]:
    """Not set by hand."""
    if scene.request.given.get("kv_cache_memory_bytes") is not None:
        yield None


def pinned_blocks(scene: Scene) -> Iterator[int]:
    """Enough blocks for the goal, in place of a number that was set by hand."""
    options = scene.base.resolved.options
    now = options.num_gpu_blocks_override
    needed = _needed_bytes(scene)
    cache = scene.base.cache
    if now is None or needed is None:
        return
    if isinstance(cache, KvCache):
        yield ceil(needed / cache.bytes_per_block) + 1
        return
    if isinstance(cache, Refusal) and cache.available_bytes > 0:
        yield ceil(now * needed / cache.available_bytes) + 1


def unpinned_blocks(scene: Scene) -> Iterator[None]:
    """Not set by hand."""
    if scene.base.resolved.options.num_gpu_blocks_override is not None:
        yield None


def _needed_bytes(scene: Scene) -> int | None:
    """The cache that the goal needs: one request of the context as vLLM says, several of the goal's in proportion."""
    goal, now = scene.request.goal, scene.base.resolved.options.max_model_len or 0
    whole = _bytes_of_one(scene.base)
    if goal.concurrency is None or goal.context is None or goal.context >= now:
        return None if whole is None else whole * (goal.concurrency or 1)
    shorter = _bytes_of_one(judge_request(scene.request, {"max_model_len": goal.context}))
    return None if whole is None or shorter is None else max(whole, shorter * goal.concurrency)


def _bytes_of_one(judged: Judged) -> int | None:
    """The cache that one request of the whole context needs."""
    cache = judged.cache
    if isinstance(cache, Refusal):
        return cache.needed_bytes
    if isinstance(cache, KvCache) and cache.max_concurrency > 0:
        return ceil(cache.num_blocks * cache.bytes_per_block / cache.max_concurrency)
    return None


def tensor_parallel(scene: Scene) -> Iterator[int]:
    """More devices by doubling, while the heads divide."""
    options = scene.base.resolved.options
    there = scene.request.gpus or NODE_DEVICES
    others = options.pipeline_parallel_size * options.data_parallel_size
    heads = _heads(scene)
    for size in (2, 4, 8, 16):
        if options.tensor_parallel_size < size <= there // others and heads % size == 0:
            yield size


def pipeline_parallel(scene: Scene) -> Iterator[int]:
    """More stages by doubling."""
    options = scene.base.resolved.options
    there = scene.request.gpus or NODE_DEVICES
    others = options.tensor_parallel_size * options.data_parallel_size
    for size in (2, 4, 8):
        if options.pipeline_parallel_size < size <= there // others:
            yield size


def fewer_ranks(scene: Scene) -> Iterator[int]:
    """Fewer tensor parallel ranks: as many as there are devices, and by which the heads divide."""
    options = scene.base.resolved.options
    others = options.pipeline_parallel_size * options.data_parallel_size
    there = (scene.request.gpus or options.tensor_parallel_size) // others
    heads = _heads(scene)
    for size in range(min(there, options.tensor_parallel_size), 0, -1):
        if size != options.tensor_parallel_size and heads % size == 0:
            yield size


def _heads(scene: Scene) -> int:
    try:
        return scene.request.checkpoint.config.integer("num_attention_heads", "n_head", "n_heads", default=0)
    except InputError:
        return 0


def offloaded_weights(scene: Scene) -> Iterator[int]:
    """GiB of weights kept in the host's memory: up to half of them."""
    weights = scene.base.ranks[0].weights_bytes
    if not isinstance(weights, Quantity):
        return
    now = scene.base.resolved.options.cpu_offload_bytes // GIB
    most = floor((weights.expected + now * GIB) / 2 / GIB)
    yield from range(now + 1, most + 1)


def fp8_cache(scene: Scene) -> Iterator[str]:
    """fp8, where the device takes it."""
    options = scene.base.resolved.options
    capability = options.device.compute_capability
    if options.kv_cache_dtype == "auto" and capability is not None and capability >= _FP8_CACHE:
        yield "fp8"


def fp8_weights(scene: Scene) -> Iterator[str]:
    """fp8 weights made at the start, where the device takes them and the checkpoint is not quantised."""
    options = scene.base.resolved.options
    capability = options.device.compute_capability
    is_plain = options.quantization is None and not scene.request.checkpoint.config.data.get(
        "quantization_config"
    )
    if (
        is_plain
        and capability is not None
        and capability >= _FP8_CACHE
        and at_least(options.vllm_version, "0.6.0")
    ):
        yield "fp8"


def text_only(scene: Scene) -> Iterator[str]:
    """No images or videos in a prompt, where the model takes them."""
    given = scene.request.given.get("limit_mm_per_prompt")
    if is_multimodal(scene.request.checkpoint.config) and given is None:
        is_json = at_least(scene.request.version, "0.8.5")
        yield msgspec.json.encode({"image": 0, "video": 0}).decode() if is_json else "image=0"


def smaller_images(scene: Scene) -> Iterator[str]:
    """Images of about a million pixels at most."""
    if (
        is_multimodal(scene.request.checkpoint.config)
        and scene.request.given.get("mm_processor_kwargs") is None
    ):
        yield msgspec.json.encode({"max_pixels": _PIXELS}).decode()


def no_multimodal_profile(scene: Scene) -> Iterator[bool]:
    """Left out, where there is one."""
    if is_multimodal(scene.request.checkpoint.config) and not scene.base.resolved.skips_multimodal:
        yield True


def no_prefix_caching(scene: Scene) -> Iterator[bool]:
    """Off, for models whose state is kept at every block's end while it is on."""
    options = scene.base.resolved.options
    data: dict[str, Any] = scene.request.checkpoint.config.data
    inner = data.get("text_config")
    keys = {*data, *(inner if isinstance(inner, dict) else {})}
    if options.enable_prefix_caching is not False and any(key in keys for key in _STATE_KEYS):
        yield False


def block_sizes(scene: Scene) -> Iterator[int]:
    """The other usual block sizes."""
    now = scene.base.resolved.options.block_size
    yield from (size for size in _BLOCK_SIZES if size != now)
