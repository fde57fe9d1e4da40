"""Settings that start and meet the goal, cheapest first: combinations of moves, each with what it costs."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fitserve.diagnose.finding import Cost
from fitserve.errors import FitserveError
from fitserve.memory.history import has_flag
from fitserve.memory.kv import KvCache
from fitserve.memory.resolve import AUTO_FIT
from fitserve.plan.command import command_with
from fitserve.plan.judge import Judged
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.values import Choice
from fitserve.units import GIB

COSTS: tuple[Cost, ...] = ("free", "capacity", "speed", "hardware", "output")
"""Cheapest first."""

_HIGH_SHARE = 0.95
_SPARE_BYTES = GIB // 2
_SEQS = (128, 32)
_TOKENS = (4096, 2048)
_FP8_CACHE = (8, 9)
"""The compute capability from which every default backend takes an fp8 cache."""

_MOST_CHOICES = 6
_NODE_DEVICES = 8
"""Devices that may be asked for where it is not known how many there are."""

Move = tuple[dict[str, Any], Cost]
"""Settings to change, and what that costs."""


def find_choices(request: Request, base: Judged) -> list[Choice]:
    """The cheapest settings that meet the goal, or that start where there is none.

    What the goal names is kept: the context is set to it, and only what costs less is tried first.

    Args:
        request: the question.
        base: the settings as asked, judged.
    """
    found: list[tuple[tuple[int, ...], Choice, dict[str, Any]]] = []
    for changes, cost in _combinations(request, base):
        if any(_is_better(known, choice.cost, changes, cost) for _, choice, known in found):
            continue
        try:
            judged = judge_request(request, changes)
        except FitserveError:
            continue
        if not meets(judged, request, low=True):
            continue
        choice = _choice(request, base, judged, changes, cost)
        found.append(((COSTS.index(cost), len(changes)), choice, changes))
    found.sort(key=lambda item: (item[0], -item[1].max_concurrency))
    return [choice for _, choice, _ in found[:_MOST_CHOICES]]


def meets(judged: Judged, request: Request, *, low: bool = False) -> bool:
    """True where it starts and holds the goal.

    Args:
        judged: the start.
        request: the question.
        low: with the least memory that is likely.
    """
    if judged.verdict != "starts":
        return False
    length = judged.resolved.options.max_model_len or 0
    goal = request.goal
    if goal.context is not None and length < goal.context:
        return False
    if goal.concurrency is None:
        return True
    asked = goal.context or length
    return concurrency_at(request, judged, asked, 0 if low else 1) >= goal.concurrency


def _is_better(known: Mapping[str, Any], known_cost: Cost, changes: Mapping[str, Any], cost: Cost) -> bool:
    """True where settings that are known to do already change less, for no more."""
    if known_cost == cost:
        return known.keys() <= changes.keys()
    return known.items() <= changes.items()


def _choice(request: Request, base: Judged, judged: Judged, changes: Mapping[str, Any], cost: Cost) -> Choice:
    before, after = base.resolved.options, judged.resolved.options
    shown = {
        name: getattr(after, name, value) if value == AUTO_FIT else value
        for name, value in changes.items()
        if getattr(before, name, None) != value
    }
    cache = judged.cache
    return Choice(
        changes=shown,
        cost=cost,
        verdict=judged.verdict,
        max_model_len=after.max_model_len or 0,
        max_concurrency=round(judged.concurrency(), 2),
        tokens=cache.tokens if isinstance(cache, KvCache) else 0,
        command=command_with(request, shown),
    )


def _combinations(request: Request, base: Judged) -> Iterator[tuple[dict[str, Any], Cost]]:
    """Every combination of moves, cheapest first."""
    axes = list(_axes(request, base))
    combined = []
    for parts in product(*axes):
        changes = {name: value for move, _ in parts for name, value in move.items()}
        cost = max((cost for _, cost in parts), key=COSTS.index)
        combined.append((COSTS.index(cost), len(changes), changes))
    combined.sort(key=lambda item: item[:2])
    for rank, _, changes in combined:
        yield changes, COSTS[rank]


def _axes(request: Request, base: Judged) -> Iterator[list[Move]]:
    """The alternatives of each setting; the first of each is to leave it."""
    options = base.resolved.options
    stay: Move = ({}, "free")
    yield _lengths(request, base)
    yield [stay, *_shares(base)]
    yield [
        stay,
        *(
            ({"max_num_seqs": n}, "capacity")
            for n in _SEQS
            if n < options.max_num_seqs and n >= (request.goal.concurrency or 1)
        ),
    ]
    yield [
        stay,
        *(
            ({"max_num_batched_tokens": n}, "speed")
            for n in _TOKENS
            if n < options.max_num_batched_tokens and n >= options.max_num_seqs
        ),
    ]
    yield [stay] if options.enforce_eager else [stay, ({"enforce_eager": True}, "speed")]
    yield [stay, *_parallel(request, base)]
    yield [stay, *_quantised(base)]


def _lengths(request: Request, base: Judged) -> list[Move]:
    """The goal's context; without one the length asked for, or a shorter one that fits."""
    options = base.resolved.options
    goal = request.goal.context
    if goal is not None:
        kept = {} if options.max_model_len == goal else {"max_model_len": goal}
        return [(kept, "free")]
    longest = _longest(base)
    moves: list[Move] = [({}, "free")]
    if 0 < longest < (options.max_model_len or 0):
        moves.append(({"max_model_len": longest}, "capacity"))
    return moves


def _longest(base: Judged) -> int:
    """The context that fits with the least memory that is likely, in whole blocks."""
    cache = base.caches[0]
    if isinstance(cache, KvCache):
        found = cache.max_model_len_that_fits or 0
    else:
        found = getattr(cache, "estimated_max_model_len", 0)
    limit = min(found, base.resolved.context.limit)
    return limit // 16 * 16


def _shares(base: Judged) -> list[Move]:
    """A larger share of the device, where it is free: 0.5 GiB is left."""
    options = base.resolved.options
    if options.kv_cache_memory_bytes is not None:
        return []
    most = _free_share(base)
    return (
        [({"gpu_memory_utilization": most}, "free")]
        if abs(most - options.gpu_memory_utilization) > 0.004 and most > 0
        else []
    )


def _free_share(judged: Judged) -> float:
    """The largest share of the device that is likely to be free at the start, in hundredths."""
    rank = judged.ranks[0]
    used = getattr(rank.used_before_bytes, "high", 0)
    most = min(_HIGH_SHARE, (rank.total_bytes - used - _SPARE_BYTES // 4) / rank.total_bytes)
    return int(most * 100) / 100


def _parallel(request: Request, base: Judged) -> list[Move]:
    """More devices, by doubling, while the heads divide.

    What several ranks hold before the start (communication buffers) may leave less than the share that is asked for:
    then the share is lowered with them.
    """
    options = base.resolved.options
    there = request.gpus or _NODE_DEVICES
    moves: list[Move] = []
    for size in (1, 2, 4, 8, 16):
        if not options.tensor_parallel_size < size <= there // options.pipeline_parallel_size:
            continue
        changes: dict[str, Any] = {"tensor_parallel_size": size}
        try:
            share = _free_share(judge_request(request, changes))
        except FitserveError:
            continue
        if options.kv_cache_memory_bytes is None and 0 < share < options.gpu_memory_utilization:
            changes["gpu_memory_utilization"] = share
        moves.append((changes, "hardware"))
    return moves


def _quantised(base: Judged) -> list[Move]:
    options = base.resolved.options
    capability = options.device.compute_capability
    is_able = (
        capability is not None
        and capability >= _FP8_CACHE
        and has_flag("kv_cache_dtype", options.vllm_version)
    )
    return [({"kv_cache_dtype": "fp8"}, "output")] if options.kv_cache_dtype == "auto" and is_able else []
