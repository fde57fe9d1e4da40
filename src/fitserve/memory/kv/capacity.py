"""From bytes to blocks, tokens and concurrency, or to vLLM's refusal.

Source: ``get_kv_cache_configs``, ``get_max_concurrency_for_kv_cache_config`` and the checks beside them in
``v1/core/kv_cache_utils.py``, vLLM 0.8.5 to 0.33.0.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from fitserve.memory.history import at_least
from fitserve.memory.kv.groups import Group, build_groups
from fitserve.memory.kv.pages import ceil_div
from fitserve.memory.kv.pools import Pool, RequestPages, pool_of, request_of, request_terms
from fitserve.memory.kv.rules import Rules, rules_of
from fitserve.memory.kv.values import KvCache, KvGroup, LayerSpec, Refusal
from fitserve.memory.options import EngineOptions
from fitserve.units import Unknown


def capacity(
    specs: tuple[LayerSpec, ...], options: EngineOptions, kv_cache_bytes: int | Sequence[int]
) -> KvCache | Refusal | Unknown:
    """What fits into the KV cache's memory.

    Args:
        specs: the layers, from ``layer_specs``.
        options: vLLM's settings; ``max_model_len`` must be set.
        kv_cache_bytes: the memory of every rank's KV cache, or of each pipeline stage's.
    """
    rules = rules_of(options.vllm_version)
    stages = options.pipeline_parallel_size
    sizes = [kv_cache_bytes] * stages if isinstance(kv_cache_bytes, int) else list(kv_cache_bytes)
    missing = _missing(specs, options, sizes)
    if missing:
        return Unknown(missing)
    if rules.groups_by_stage and stages > 1:
        return _stage_by_stage(specs, options, sizes)
    groups = _groups(specs, options, rules)
    request = request_of(options, rules)
    if groups is None and rules.v0:
        return Unknown("layers with unequal cache pages, of which the V0 engine reckons all as the first")
    if groups is None:
        return _without_groups(specs, sizes, request, options)
    pools = [pool_of(groups, specs, stage, size, options) for stage, size in enumerate(sizes)]
    return _check(pools, request, options, rules) or _fitting(groups, pools, request, options, rules)


def too_few_states(cache: KvCache, options: EngineOptions, *, captures_full: bool) -> Refusal | None:
    """The refusal of a cache that is laid out: fewer blocks than sequences, each of which needs one for its state.

    The blocks are counted when graphs of whole decode steps are about to be captured, so the layout stands; without such graphs
    nothing is refused.

    Source: ``resolve_cudagraph_mode_and_sizes`` in ``config/compilation.py``, vLLM 0.20.0 to 0.33.0; 0.18 and 0.19 capture
    fewer sizes instead.

    Args:
        cache: the layout.
        options: vLLM's settings.
        captures_full: such graphs are captured.
    """
    has_states = any(group.kind == "state" for group in cache.groups)
    counts = captures_full and at_least(options.vllm_version, "0.20.0")
    if not has_states or not counts or options.max_num_seqs <= cache.num_blocks:
        return None
    return Refusal(
        cause="state-cache-too-small",
        needed_bytes=options.max_num_seqs * cache.bytes_per_block,
        available_bytes=cache.num_blocks * cache.bytes_per_block,
        estimated_max_model_len=cache.max_model_len_that_fits or 0,
        max_model_len=options.max_model_len or 0,
    )


def concurrency_by_length(
    specs: tuple[LayerSpec, ...],
    options: EngineOptions,
    kv_cache_bytes: Sequence[int],
    lengths: Sequence[int],
) -> list[float]:
    """Requests at once of each length, shortest first; it ends before the first length of which not one fits.

    The same as ``capacity`` with each length as ``max_model_len``, laid out once: a longer request never needs less.

    Args:
        specs: the layers, none of them with pages that depend on ``max_model_len``.
        options: vLLM's settings; ``max_model_len`` must be set.
        kv_cache_bytes: the memory of each pipeline stage's KV cache.
        lengths: tokens of a request, rising.
    """
    rules = rules_of(options.vllm_version)
    stages = options.pipeline_parallel_size
    if _missing(specs, options, kv_cache_bytes):
        return []
    if rules.groups_by_stage and stages > 1:
        each = (
            capacity(specs, msgspec.structs.replace(options, max_model_len=n), kv_cache_bytes)
            for n in lengths
        )
        fitting = takewhile(lambda cache: isinstance(cache, KvCache), each)
        return [cache.max_concurrency for cache in fitting if isinstance(cache, KvCache)]
    groups = _groups(specs, options, rules)
    if groups is None:
        return []
    request = request_of(options, rules)
    pools = [pool_of(groups, specs, stage, size, options) for stage, size in enumerate(kv_cache_bytes)]

    def is_refused(tokens: int) -> bool:
        asked = msgspec.structs.replace(options, max_model_len=tokens)
        return _check(pools, request, asked, rules) is not None

    end = bisect_left(lengths, True, key=is_refused)
    blocks = _blocks(pools, options)
    return [_at_once(groups, request, blocks, tokens, rules) for tokens in lengths[:end]]


def _groups(specs: tuple[LayerSpec, ...], options: EngineOptions, rules: Rules) -> Sequence[Group] | None:
    hybrid = rules.hybrid and not rules.v0 and not options.disable_hybrid_kv_cache_manager
    return build_groups(specs, options.pipeline_parallel_size, rules, hybrid=hybrid)


def _missing(specs: Sequence[LayerSpec], options: EngineOptions, sizes: Sequence[int]) -> str:
    """Why there is no answer; empty where there is one."""
    if options.max_model_len is None:
        return "max_model_len is not known"
    if len(sizes) != options.pipeline_parallel_size:
        return (
            f"the KV cache memory of {len(sizes)} stages is given, there are {options.pipeline_parallel_size}"
        )
    windows = any(spec.kind in ("sliding", "chunked") for spec in specs)
    if options.decode_context_parallel_size > 1 and windows:
        return "decode_context_parallel_size with windows or chunks, which vLLM refuses"
    return "" if any(spec.page_bytes for spec in specs) else "no layer of this model keeps a KV cache"


def _without_groups(
    specs: Sequence[LayerSpec], sizes: Sequence[int], request: RequestPages, options: EngineOptions
) -> Refusal:
    """Pages that cannot share a pool; up to 0.13 the length is checked before."""
    rules = rules_of(options.vllm_version)
    if rules.need == "layers":
        pools = [Pool(1, request_terms((), specs, stage, 0, rules), size) for stage, size in enumerate(sizes)]
        refused = _check(pools, request, options, rules)
        if refused is not None:
            return refused
    return _refusal("kv-pages-not-unifiable", options, 0, min(sizes), 0)


def _stage_by_stage(
    specs: Sequence[LayerSpec], options: EngineOptions, sizes: Sequence[int]
) -> KvCache | Refusal | Unknown:
    """Each stage on its own, as its workers lay it out; the smallest number of blocks counts."""
    alone = msgspec.structs.replace(options, pipeline_parallel_size=1)
    found: KvCache | None = None
    for stage, size in enumerate(sizes):
        own = tuple(part for spec in specs if (part := _of_stage(spec, stage)).layers)
        stage_cache = capacity(own, alone, size)
        if not isinstance(stage_cache, KvCache):
            return stage_cache
        if found is None or stage_cache.num_blocks < found.num_blocks:
            found = stage_cache
    return found or Unknown("there is no pipeline stage")


def _of_stage(spec: LayerSpec, stage: int) -> LayerSpec:
    layers = tuple(layer for layer, where in zip(spec.layers, spec.stages, strict=True) if where == stage)
    return msgspec.structs.replace(spec, layers=layers, stages=())


def _check(
    pools: Sequence[Pool], request: RequestPages, options: EngineOptions, rules: Rules
) -> Refusal | None:
    """The first stage whose memory does not hold one request of ``max_model_len`` tokens."""
    tokens = options.max_model_len or 0
    for pool in pools:
        if not pool.bytes_per_block:
            continue
        available = pool.available_bytes - (pool.bytes_per_block if rules.null_block else 0)
        if available <= 0:
            return _refusal("no-kv-cache-blocks", options, 0, available, 0)
        needed = request.needed_bytes(pool.terms, tokens)
        if rules.v0:
            needed = tokens and ceil_div(tokens, pool.terms[0][1].block_size) * pool.bytes_per_block
            available -= available % pool.bytes_per_block
        if needed > available:
            longest = request.longest(pool.terms, available)
            return _refusal("kv-cache-smaller-than-context", options, needed, available, longest or 0)
    return None


def _refusal(cause: str, options: EngineOptions, needed: int, available: int, longest: int) -> Refusal:
    pinned = options.kv_cache_memory_bytes is not None or options.num_gpu_blocks_override is not None
    if cause == "kv-cache-smaller-than-context" and pinned:
        cause = "kv-cache-pinned-too-small"
    return Refusal(
        cause=cause,
        needed_bytes=needed,
        available_bytes=available,
        estimated_max_model_len=min(longest, options.max_model_len or longest),
        max_model_len=options.max_model_len or 0,
    )


def _fitting(
    groups: Sequence[Group],
    pools: Sequence[Pool],
    request: RequestPages,
    options: EngineOptions,
    rules: Rules,
) -> KvCache:
    tokens = options.max_model_len or 0
    blocks = _blocks(pools, options)
    smallest = min(group.spec.block_size for group in groups)
    concurrency = _at_once(groups, request, blocks, tokens, rules)
    if rules.tokens == "blocks":
        printed = blocks * smallest
    else:
        shared = blocks // len(groups) * smallest * request.shards
        printed = int(concurrency * tokens) if rules.tokens == "concurrency" else shared
    return KvCache(
        block_size=smallest,
        num_blocks=blocks,
        tokens=printed,
        bytes_per_block=max(pool.bytes_per_block for pool in pools),
        bytes_per_token=_bytes_per_token(groups, pools, request.shards),
        max_concurrency=concurrency,
        groups=tuple(_described(group) for group in groups),
        max_model_len_that_fits=_longest(pools, request, rules),
    )


def _blocks(pools: Sequence[Pool], options: EngineOptions) -> int:
    if options.num_gpu_blocks_override is not None:
        return options.num_gpu_blocks_override
    return min(pool.available_bytes // pool.bytes_per_block for pool in pools if pool.bytes_per_block)


def _at_once(groups: Sequence[Group], request: RequestPages, blocks: int, tokens: int, rules: Rules) -> float:
    """Requests of so many tokens that so many blocks hold."""
    if rules.tokens == "blocks":
        return blocks * min(group.spec.block_size for group in groups) / tokens
    per_request = 0
    for group in groups:
        per_request += max([request.pages(spec, tokens) for spec, _ in group.parts])
    return blocks / per_request


def _bytes_per_token(groups: Sequence[Group], pools: Sequence[Pool], shards: int) -> int:
    """Bytes of one more token of a long request, rounded up; windows and states take no more."""
    block = max(pool.bytes_per_block for pool in pools)
    growing = [group.spec for group in groups if group.spec.kind in ("full", "mla")]
    return sum(ceil_div(block, spec.block_size * shards) for spec in growing)


def _longest(pools: Sequence[Pool], request: RequestPages, rules: Rules) -> int | None:
    found = [
        request.longest(pool.terms, pool.available_bytes - (pool.bytes_per_block if rules.null_block else 0))
        for pool in pools
        if pool.bytes_per_block
    ]
    known = [tokens for tokens in found if tokens is not None]
    return min(known) if known else None


def _described(group: Group) -> KvGroup:
    spec = group.spec
    page = spec.page_bytes if len(group.parts) == 1 else sum(p.page_bytes * sum(c) for p, c in group.parts)
    return KvGroup(kind=spec.kind, layers=group.layers, block_size=spec.block_size, page_bytes=page)
