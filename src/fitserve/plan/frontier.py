"""How long a context against how many at once, over cache types, devices, shares and graphs."""

from itertools import product

from fitserve.errors import FitserveError
from fitserve.memory.kv import KvCache
from fitserve.plan.judge import Judged
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.values import FrontierPoint

_SHARES = (0.9, 0.95)
_SIZES = (1, 2, 4, 8, 16)
_SHORTEST = 4096


def find_frontier(request: Request) -> list[FrontierPoint]:
    """One point for each combination of settings whose devices are there."""
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
        points.append(_point(request, judged))
    return points


def _point(request: Request, judged: Judged) -> FrontierPoint:
    options = judged.resolved.options
    concurrency = {}
    longest = 0
    for length in _lengths(judged.resolved.context.limit):
        found = concurrency_at(request, judged, length)
        if found <= 0:
            break
        longest = length
        concurrency[str(length)] = round(found, 2)
    cache = judged.cache
    if isinstance(cache, KvCache):
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
    )


def _lengths(limit: int) -> list[int]:
    """Doubling lengths up to the model's own."""
    found: list[int] = []
    length = _SHORTEST
    while length < limit and len(found) < 12:
        found.append(length)
        length *= 2
    return [*found, limit] if limit < 1 << 32 else found
