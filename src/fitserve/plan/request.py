"""What a plan is asked: the model, the machine, the settings, the goal."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.memory.budget import RankBudget, rank_budgets
from fitserve.memory.kv import KvCache, capacity, layer_specs
from fitserve.memory.options import Device
from fitserve.memory.resolve import Resolved, resolve
from fitserve.memory.weights.counted import CountedWeights
from fitserve.plan.accepted import refused_values, removed_options
from fitserve.plan.asked import Asked
from fitserve.plan.judge import Judged, judge, stage_sizes
from fitserve.plan.observed import Observed, carried_over
from fitserve.plan.values import Goal
from fitserve.units import Quantity, Unknown


class Request(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The question.

    Attributes:
        checkpoint: the model.
        model: its path or id as given.
        device: the accelerator, one of equal ones.
        given: the user's settings by vLLM's names.
        version: the release.
        gpus: how many devices there are; None where that is not known.
        environment: variables that vLLM would see.
        goal: what is needed.
        argv: the command that was pasted; empty where there was none.
        observed: what earlier starts of this launch have shown, the latest last.
        refused: options whose spelling the release does not read, with a sentence each.
        with_frontier: the frontier is wanted.
        asked: what an engine says of the model, or why it does not; None where none was asked.
    """

    checkpoint: Checkpoint
    model: str
    device: Device
    given: Mapping[str, Any]
    version: str
    gpus: int | None = None
    environment: Mapping[str, str] = {}
    goal: Goal = Goal()
    argv: tuple[str, ...] = ()
    observed: tuple[Observed, ...] = ()
    refused: Mapping[str, str] = {}
    with_frontier: bool = False
    asked: Asked | Unknown | None = None

    @cached_property
    def weights(self) -> CountedWeights:
        """The checkpoint's weights by settings."""
        return CountedWeights(self.checkpoint)

    @cached_property
    def observed_starts(self) -> tuple[tuple[Resolved, RankBudget], ...]:
        """The settings of each start that was observed, and the model's budget for them."""
        found = []
        for observed in self.observed:
            settings, variables = split_variables(observed.given)
            resolved = resolve(
                self.checkpoint.config,
                settings,
                version=self.version,
                device=self.device,
                environment={**self.environment, **variables},
            )
            found.append((resolved, _rank_budgets(self, resolved)[0]))
        return tuple(found)


def resolve_request(request: Request, changes: Mapping[str, Any] | None = None) -> Resolved:
    """The settings with all defaults, after some changes of options and of variables."""
    settings, variables = split_variables(changes or {})
    given = {**request.given, **settings}
    pinned = given.get("kv_cache_memory_bytes")
    if isinstance(pinned, int) and pinned < 0:
        raise UsageError(f"kv_cache_memory_bytes {pinned:,} is below 0", hint="give bytes, such as 20G")
    if pinned == 0:
        given["kv_cache_memory_bytes"] = (
            None  # As for ``if kv_cache_memory_bytes := ...`` in v1/worker/gpu_worker.py.
        )
    resolved = resolve(
        request.checkpoint.config,
        given,
        version=request.version,
        device=request.device,
        environment={**request.environment, **variables},
    )
    typed = (sentence for name, sentence in request.refused.items() if name not in settings)
    values = (refused_values(given, request.version), removed_options(given, request.version))
    refused = (*resolved.refused, *typed, *(sentence for found in values for sentence in found.values()))
    return msgspec.structs.replace(resolved, refused=refused) if refused else resolved


def split_variables(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options by name, and environment variables, whose names are upper case."""
    settings = {name: value for name, value in changes.items() if not name.isupper()}
    variables = {name: str(value) for name, value in changes.items() if name.isupper()}
    return settings, variables


def judge_request(request: Request, changes: Mapping[str, Any] | None = None) -> Judged:
    """The start judged, after some changes of its settings.

    Raises:
        InputError: the configuration lacks a number.
        UsageError: a setting is wrong.
    """
    resolved = resolve_request(request, changes)
    asked = request.asked if isinstance(request.asked, Asked) else None
    weights = asked.weights(resolved.options) if asked else None
    return judge(
        request.checkpoint.config,
        resolved,
        weights or request.weights.of(resolved.options),
        gpus=request.gpus,
        measured=measured_terms(request, resolved),
        caches=asked.caches(resolved.options) if asked else None,
    )


def concurrency_at(request: Request, judged: Judged, length: int, end: int = 1) -> float:
    """Requests of that many tokens at once; 0 where none fits.

    Args:
        request: the question.
        judged: the start.
        length: tokens of each request.
        end: 0 with the least memory that is likely, 1 with the expected, 2 with the most.
    """
    known = judged.caches[end]
    if length == judged.resolved.options.max_model_len and isinstance(known, KvCache):
        return known.max_concurrency
    options = msgspec.structs.replace(judged.resolved.options, max_model_len=length)
    specs = layer_specs(request.checkpoint.config, options)
    sizes = stage_sizes(judged.ranks, end)
    if isinstance(specs, Unknown) or isinstance(sizes, Unknown):
        return 0.0
    found = capacity(specs, options, sizes)
    return found.max_concurrency if isinstance(found, KvCache) else 0.0


def scheduled_at(request: Request, judged: Judged, length: int, end: int = 1) -> float:
    """The same, of what is really scheduled: V1 never hands out one block of those that its own figure counts.

    Source: ``null_block`` of ``BlockPool`` in ``v1/core/block_pool.py``, vLLM 0.8.5 to 0.33.0.
    """
    most, cache = concurrency_at(request, judged, length, end), judged.caches[end]
    if not judged.resolved.is_v1 or not isinstance(cache, KvCache):
        return most
    return most * (cache.num_blocks - 1) / cache.num_blocks


def measured_terms(request: Request, resolved: Resolved) -> dict[str, Quantity]:
    """The terms of the budget that earlier starts correct; empty where there were none."""
    if not request.observed:
        return {}
    now = _rank_budgets(request, resolved)[0]
    found: dict[str, Quantity] = {}
    for observed, (then, budget) in zip(request.observed, request.observed_starts, strict=True):
        found |= carried_over(observed, budget, now, then)
    return found


def _rank_budgets(request: Request, resolved: Resolved) -> tuple[RankBudget, ...]:
    """The budget as the model alone reckons it."""
    return rank_budgets(request.checkpoint.config, resolved, request.weights.of(resolved.options))
