"""How long a context against how many at once, over cache types, devices, shares and graphs."""

from collections.abc import Sequence
from itertools import product, takewhile

from fitserve.errors import FitserveError
from fitserve.memory.kv import KvCache, concurrency_by_length, layer_specs
from fitserve.plan.judge import Judged, stage_sizes
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.values import FrontierPoint
from fitserve.units import Unknown

_SHARES = (0.9, 0.95)
_SIZES = (1, 2, 4, 8, 16)
_SHORTEST = 4096
_BY_LENGTH = ("kv-cache-smaller-than-context", "context-beyond-model-limit", "kv-cache-pinned-too-small")
"""Causes that a shorter context does away with."""


def find_frontier(request: Request, lengths: Sequence[int] | None = None) -> list[FrontierPoint]:
    """One point for each combination of settings whose devices are there.

    Args:
        request: the question.
        lengths: tokens of a request, rising; doubling ones up to the model's own where not given.
    """
    options = judge_request(request).resolved.options
    there = request.gpus if request.gpus is not None else options.tensor_parallel_size
    sizes = [size for size in _SIZES if size <= there] or [options.tensor_parallel_size]
    dtypes = list(dict.fromkeys((options.kv_cache_dtype, "fp8")))
    points = []
    for dtype, size, share, eager in product(dtypes, sizes, _SHARES, (False, True)):
        changes = {
            "kv_cache_dtype": dtype,
            "tensor_parallel_size": size,
            "gpu_memory_utilization": share,
            "enforce_eager": eager,
        }
        try:
            judged = judge_request(request, changes)
        except FitserveError:
            continue
        points.append(_point(request, judged, lengths or _lengths(judged.resolved.context.limit)))
    return points


def _point(request: Request, judged: Judged, lengths: Sequence[int]) -> FrontierPoint:
    options = judged.resolved.options
    problem = (
        judged.problem if judged.problem is not None and judged.problem.cause not in _BY_LENGTH else None
    )
    is_refused = problem is not None and problem.sure
    found = [] if is_refused else _concurrency(request, judged, lengths)
    concurrency = {str(length): round(at_once, 2) for length, at_once in zip(lengths, found, strict=False)}
    longest = lengths[len(found) - 1] if found else 0
    cache = judged.cache
    if isinstance(cache, KvCache) and not is_refused:
        longest = min(
            cache.max_model_len_that_fits or judged.resolved.context.limit, judged.resolved.context.limit
        )
    return FrontierPoint(
        kv_cache_dtype=options.kv_cache_dtype,
        tensor_parallel_size=options.tensor_parallel_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        enforce_eager=options.enforce_eager,
        longest=longest,
        concurrency=concurrency,
        cause=problem.cause if problem else None,
    )


def _concurrency(request: Request, judged: Judged, lengths: Sequence[int]) -> list[float]:
    """Requests at once of each length, up to the longest of which one fits."""
    options = judged.resolved.options
    specs = layer_specs(request.checkpoint.config, options)
    sizes = stage_sizes(judged.ranks, 1)
    if isinstance(specs, Unknown) or isinstance(sizes, Unknown):
        return []
    if request.asked is None and all(spec.kind != "state" for spec in specs):
        return concurrency_by_length(specs, options, sizes, lengths)
    # A state's block may be as long as max_model_len, and an engine's answer counts at its own length alone.
    each = (concurrency_at(request, judged, length) for length in lengths)
    return list(takewhile(lambda at_once: at_once > 0, each))


def _lengths(limit: int) -> list[int]:
    """Doubling lengths up to the model's own."""
    found: list[int] = []
    length = _SHORTEST
    while length < limit and len(found) < 12:
        found.append(length)
        length *= 2
    return [*found, limit] if limit < 1 << 32 else found
