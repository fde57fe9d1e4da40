"""Where no settings serve the goal: the best that the devices can do, and what it would take."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fitserve.errors import FitserveError
from fitserve.memory.kv import KvCache, capacity, layer_specs
from fitserve.plan.choices import meets
from fitserve.plan.command import command_with
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Scene
from fitserve.plan.moves.values import NODE_DEVICES, free_share
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.values import Choice, Nearest
from fitserve.units import Quantity, Unknown

_MOST_DEVICES = 64
_AMPLE = 1 << 40
"""Bytes of a cache in which what one more request takes shows."""

_STEP = 16
"""Tokens that a context is rounded down to."""


def find_nearest(request: Request, base: Judged) -> Nearest:
    """The longest context, the most requests at once, the devices and the weights that would do.

    Answers are not changed for it: the cache's type and the weights stay. Graphs are given up only where nothing starts
    with them.

    Args:
        request: the question.
        base: the settings as asked, judged.
    """
    wanted = max(1, request.goal.concurrency or 1)
    length = request.goal.context or base.resolved.options.max_model_len or 1
    longest = most = None
    for eager in (False, True):
        settings = list(_settings(request, base, wanted, eager=eager))
        longest = longest or _longest(request, settings, wanted)
        most = most or _most(request, settings, length)
    is_too_long = length > base.resolved.context.limit and not base.resolved.allows_long
    return Nearest(
        longest=longest,
        most=most,
        devices=None if is_too_long else _devices(request, base, length),
        weights_bytes=None if is_too_long else _weights(request, base, length, wanted),
    )


def _settings(request: Request, base: Judged, wanted: int, *, eager: bool) -> Iterator[dict[str, Any]]:
    """Every number of the devices that are there, with the share asked for and with all that is likely to be free."""
    options = base.resolved.options
    there = (request.gpus or NODE_DEVICES) // options.pipeline_parallel_size
    smallest = options.tensor_parallel_size
    for size in [smallest] + [size for size in _doubling(smallest) if size <= there]:
        changes: dict[str, Any] = {"tensor_parallel_size": size} if size != smallest else {}
        if wanted > options.max_num_seqs:
            changes["max_num_seqs"] = wanted
        if eager and not options.enforce_eager:
            changes["enforce_eager"] = True
        yield changes
        share = _free_share(request, changes)
        if share is not None and share != options.gpu_memory_utilization:
            yield {**changes, "gpu_memory_utilization": share}


def _doubling(size: int) -> Iterator[int]:
    power = 1
    while power <= _MOST_DEVICES:
        if power > size:
            yield power
        power *= 2


def _free_share(request: Request, changes: dict[str, Any]) -> float | None:
    """The largest share of the device that is likely to be free at the start, in hundredths; None where it does not count."""
    judged = _judged(request, changes)
    if judged is None or judged.resolved.options.kv_cache_memory_bytes is not None:
        return None
    share = free_share(Scene(request=request, base=judged))
    return share if share > 0 else None


def _judged(request: Request, changes: dict[str, Any]) -> Judged | None:
    try:
        return judge_request(request, changes)
    except FitserveError:
        return None


def _longest(request: Request, settings: list[dict[str, Any]], wanted: int) -> Choice | None:
    """The longest context of which so many requests fit at once with the least memory that is likely."""
    best: tuple[int, Choice] | None = None
    for changes in settings:
        judged = _judged(request, {**changes, "max_model_len": _STEP})
        if judged is None or judged.verdict != "starts":
            continue
        low, high = 0, judged.resolved.context.limit
        while low < high:
            middle = (low + high + 1) // 2
            if concurrency_at(request, judged, middle, 0) >= wanted:
                low = middle
            else:
                high = middle - 1
        length = low if low == judged.resolved.context.limit else low // _STEP * _STEP
        if length and (best is None or length > best[0]):
            choice = _choice(request, {**changes, "max_model_len": length})
            best = best if choice is None else (length, choice)
    return best[1] if best else None


def _most(request: Request, settings: list[dict[str, Any]], length: int) -> Choice | None:
    """The most requests of that length at once; None where not one fits."""
    found = [_choice(request, {**changes, "max_model_len": length}) for changes in settings]
    return max((one for one in found if one is not None), key=lambda one: one.concurrency_low, default=None)


def _choice(request: Request, changes: dict[str, Any]) -> Choice | None:
    """The settings, where they start for sure."""
    judged = _judged(request, changes)
    if judged is None or judged.verdict != "starts" or not isinstance(judged.cache, KvCache):
        return None
    asked = judge_request(request).resolved.options
    shown = {name: value for name, value in changes.items() if getattr(asked, name, None) != value}
    return Choice(
        changes=shown,
        cost="hardware"
        if "tensor_parallel_size" in shown
        else "speed"
        if "enforce_eager" in shown
        else "capacity",
        verdict=judged.verdict,
        max_model_len=judged.resolved.options.max_model_len or 0,
        max_concurrency=round(judged.concurrency(), 2),
        concurrency_low=round(judged.concurrency(low=True), 2),
        tokens=judged.cache.tokens,
        command=command_with(request, shown),
    )


def _devices(request: Request, base: Judged, length: int) -> int | None:
    """The fewest devices beyond those that are there with which the goal is met, by doubling."""
    options = base.resolved.options
    there = (request.gpus or NODE_DEVICES) // options.pipeline_parallel_size
    anywhere = msgspec.structs.replace(request, gpus=None)
    for size in _doubling(max(there, options.tensor_parallel_size)):
        changes: dict[str, Any] = {"tensor_parallel_size": size, "max_model_len": length}
        share = _free_share(anywhere, changes)
        shares: list[dict[str, Any]] = [{}] if share is None else [{}, {"gpu_memory_utilization": share}]
        for extra in shares:
            judged = _judged(anywhere, {**changes, **extra})
            if judged is not None and meets(judged, anywhere, low=True):
                return size * options.pipeline_parallel_size
    return None


def _weights(request: Request, base: Judged, length: int, wanted: int) -> int | None:
    """Bytes of weights, all ranks together, that would leave room for the goal on the devices that are there."""
    there = max(_settings(request, base, wanted, eager=False), key=_size_of)
    judged = _judged(request, {**there, "max_model_len": length})
    if judged is None:
        return None
    options = judged.resolved.options
    specs = layer_specs(request.checkpoint.config, options)
    if isinstance(specs, Unknown):
        return None
    at_once = capacity(specs, options, [_AMPLE] * options.pipeline_parallel_size)
    if not isinstance(at_once, KvCache) or not at_once.max_concurrency:
        return None
    need = _AMPLE * wanted / at_once.max_concurrency
    total = 0.0
    for rank in judged.ranks:
        held, left = rank.weights_bytes, rank.kv_cache_bytes
        if not isinstance(held, Quantity) or not isinstance(left, Quantity):
            return None
        total += held.high + left.low - need
    return int(total) if total > 0 else None


def _size_of(changes: dict[str, Any]) -> tuple[int, float]:
    return changes.get("tensor_parallel_size", 0), changes.get("gpu_memory_utilization", 0.0)
