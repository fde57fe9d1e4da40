"""The one change to try next: the cheapest that the memory model expects to serve, else what the diagnosis advises."""

from typing import Any

import msgspec

from fitserve.diagnose.finding import Advice, Diagnosis, Direction
from fitserve.errors import FitserveError
from fitserve.facts.command import Launch
from fitserve.memory.kv import KvCache
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Move
from fitserve.plan.moves.table import MOVES
from fitserve.plan.nearest import find_nearest
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.search import Candidate, Level, cheapest, cost_of, few_moves, level, single_moves
from fitserve.trial.choice import Bounds, Choice, Skipped, Try, choose, objection
from fitserve.units import Unknown

MODELLED = frozenset(cause for move in MOVES for cause in move.causes)
"""Causes that the memory model knows moves against."""

_DEVICE_FLAGS = ("tensor_parallel_size", "pipeline_parallel_size")


def next_change(
    diagnosis: Diagnosis,
    launch: Launch,
    request: Request | Unknown,
    tried: set[Try],
    bounds: Bounds,
) -> Choice:
    """The next change, with what was passed over.

    Args:
        diagnosis: why the last trial failed.
        launch: its command.
        request: what the memory model is asked, or why it cannot be.
        tried: every flag and value that a trial had.
        bounds: what a change may not do.
    """
    advised = choose(diagnosis, launch, tried, bounds)
    if isinstance(request, Unknown) or diagnosis.cause not in MODELLED:
        return advised
    try:
        base = judge_request(request)
    except FitserveError:
        return advised
    if base.unknown is not None:
        return advised
    search = _Search(request, base, launch, tried, bounds)
    found = search.best(diagnosis.cause)
    if found is not None:
        return Choice(advice=_advice(found, request, base, found.moves[0]), skipped=advised.skipped)
    return _only_unjudged(advised, request, base)


class _Search:
    """The moves that may be made now."""

    def __init__(
        self, request: Request, base: Judged, launch: Launch, tried: set[Try], bounds: Bounds
    ) -> None:
        self.request = request
        self.base = base
        self.launch = launch
        self.tried = tried
        self.bounds = bounds

    def usable(self, move: Move, value: Any) -> bool:
        """True where nothing speaks against it."""
        advice = Advice(flag=move.flag, to=value, cost=move.cost, direction="set", why=move.saves)
        return objection(advice, self.launch, self.tried, self.bounds) is None

    def best(self, cause: str) -> Candidate | None:
        """One move that is likely to serve; else the first of the fewest that are; else of those that might."""
        singles = single_moves(self.request, self.base, cause=cause, usable=self.usable)
        likely = cheapest(one for one in singles if one.level <= Level.EXPECTED)
        if likely is not None:
            return likely
        several = few_moves(self.request, self.base, cause=cause, usable=self.usable)
        return several[0] if several else None


def _reachable(request: Request, base: Judged) -> str:
    """What the devices would serve at best, in words; empty where nothing is."""
    nearest = find_nearest(request, base)
    parts = []
    if nearest.most is not None and nearest.most.concurrency_low >= 1:
        many = int(nearest.most.concurrency_low)
        parts.append(f"{many} at once of {nearest.most.max_model_len:,} tokens")
    if nearest.longest is not None:
        wanted = request.goal.concurrency or 1
        parts.append(f"{wanted} at once of {nearest.longest.max_model_len:,} tokens")
    return f"at best {' or '.join(dict.fromkeys(parts))} would fit here" if parts else ""


def _only_unjudged(advised: Choice, request: Request, base: Judged) -> Choice:
    """The diagnosis' own advice, unless the model can judge it: then it has been found not to do."""
    advice = advised.advice
    if advice is None or advice.flag is None or not _is_judged(advice, request, base):
        return msgspec.structs.replace(advised, reachable=_reachable(request, base))
    skipped = [*advised.skipped, Skipped(advice, "it is not expected to serve the goal")]
    return Choice(advice=None, skipped=skipped, reachable=_reachable(request, base))


def _is_judged(advice: Advice, request: Request, base: Judged) -> bool:
    """True where the model tells the start with this change from the start without it."""
    if advice.flag is None:
        return False
    try:
        after = judge_request(request, {advice.flag: advice.to})
    except FitserveError:
        return False
    return after.resolved != base.resolved and level(after, request) == Level.NO


def _advice(found: Candidate, request: Request, base: Judged, move: Move) -> Advice:
    value = found.changes[move.flag]
    before = request.given.get(move.flag, getattr(base.resolved.options, move.flag, None))
    one = judge_request(request, {move.flag: value}) if len(found.moves) > 1 else found.judged
    cache = one.cache
    more = "" if len(found.moves) == 1 else f"; {_further(found)} will be needed too"
    return Advice(
        flag=move.flag,
        value_from=before if isinstance(before, int | float | str) else None,
        to=value,
        direction=_direction(before, value),
        cost=cost_of(move, request),
        why=f"{move.saves}; {_expected(found, request)}{more}",
        predicted={
            "verdict": one.verdict,
            "kv_cache_tokens": cache.tokens if isinstance(cache, KvCache) else 0,
            "max_concurrency": round(one.concurrency(), 2),
            "max_model_len": one.resolved.options.max_model_len,
        },
    )


def _further(found: Candidate) -> str:
    return " and ".join(f"{move.flag} {found.changes[move.flag]}" for move in found.moves[1:])


def _expected(found: Candidate, request: Request) -> str:
    """What the model expects, in words."""
    sure = {Level.CONFIDENT: "expected", Level.EXPECTED: "likely", Level.POSSIBLE: "possible"}[found.level]
    length = request.goal.context or found.judged.resolved.options.max_model_len or 0
    end = 0 if found.level == Level.CONFIDENT else 1
    many = concurrency_at(request, found.judged, length, end)
    return f"{many:.1f} requests of {length:,} tokens at once are {sure}"


def _direction(before: object, value: object) -> Direction:
    for size in (before, value):
        if isinstance(size, bool) or not isinstance(size, int | float):
            return "set"
    return "up" if value > before else "down"  # type: ignore[operator]
