"""Settings that start and meet the goal, cheapest first, each with what it costs."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fitserve.memory.kv import KvCache
from fitserve.memory.resolve import AUTO_FIT
from fitserve.plan.command import command_with
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Move
from fitserve.plan.request import Request, judge_request
from fitserve.plan.search import COSTS, Candidate, Level, cause_now, few_moves, level
from fitserve.plan.values import Choice

_MOST_CHOICES = 6

_LIMITS_INPUT = ("limit_mm_per_prompt", "mm_processor_kwargs", "skip_mm_profiling")
"""Settings that take something from the model's input: a plan does not offer them unasked."""


def find_choices(request: Request, base: Judged) -> list[Choice]:
    """The cheapest settings that meet the goal, or that start where there is none.

    What the goal names is kept: the context is set to it before anything else is changed.

    Args:
        request: the question.
        base: the settings as asked, judged.
    """
    raised = _at_goal(request, base)
    asked = msgspec.structs.replace(request, given={**request.given, **raised})
    start = judge_request(asked) if raised else base
    if level(start, asked) == Level.CONFIDENT:
        served = Candidate(moves=(), changes={}, cost="free", judged=start, level=Level.CONFIDENT)
        return [_choice(request, base, served, raised)]
    found = few_moves(asked, start, cause=cause_now(start), usable=_keeps_input)
    sure = sorted(
        (one for one in found if one.level == Level.CONFIDENT), key=lambda one: COSTS.index(one.cost)
    )
    return [_choice(request, base, one, raised) for one in sure[:_MOST_CHOICES]]


def meets(judged: Judged, request: Request, *, low: bool = False) -> bool:
    """True where it starts for sure and holds the goal.

    Args:
        judged: the start.
        request: the question.
        low: with the least memory that is likely.
    """
    reached = level(judged, request)
    return judged.verdict == "starts" and reached <= (Level.CONFIDENT if low else Level.EXPECTED)


def _keeps_input(move: Move, _value: Any) -> bool:
    return move.flag not in _LIMITS_INPUT


def _at_goal(request: Request, base: Judged) -> dict[str, Any]:
    goal, now = request.goal.context, base.resolved.options.max_model_len or 0
    return {"max_model_len": goal} if goal is not None and goal != now else {}


def _choice(request: Request, base: Judged, found: Candidate, raised: Mapping[str, Any]) -> Choice:
    before, after = base.resolved.options, found.judged.resolved.options
    shown = {
        name: getattr(after, name, value) if value == AUTO_FIT else value
        for name, value in {**raised, **found.changes}.items()
        if getattr(before, name, None) != value
    }
    cache = found.judged.cache
    return Choice(
        changes=shown,
        cost=found.cost,
        verdict=found.judged.verdict,
        max_model_len=after.max_model_len or 0,
        max_concurrency=round(found.judged.concurrency(), 2),
        tokens=cache.tokens if isinstance(cache, KvCache) else 0,
        command=command_with(request, shown),
    )
