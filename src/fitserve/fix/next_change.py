"""The one change to try next: the cheapest that the memory model expects to serve, else what the diagnosis advises."""

from typing import Any

import msgspec

from fitserve.diagnose.finding import Advice, Cost, Diagnosis, Direction
from fitserve.errors import FitserveError
from fitserve.facts.command import Launch
from fitserve.memory.kv import KvCache
from fitserve.plan.checks import has_margin
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Move
from fitserve.plan.moves.table import MOVES
from fitserve.plan.nearest import find_nearest
from fitserve.plan.request import Request, concurrency_at, judge_request, resolve_request
from fitserve.plan.search import (
    COSTS,
    GOAL_NOT_MET,
    Candidate,
    Level,
    Usable,
    cause_now,
    cheapest,
    cost_of,
    few_moves,
    level,
    single_moves,
)
from fitserve.trial.choice import Bounds, Choice, Skipped, Try, choose, objection
from fitserve.units import Unknown

MODELLED = frozenset(cause for move in MOVES for cause in move.causes)
"""Causes that the memory model knows moves against."""

BESIDE_CACHE = ("graph-capture-oom", "sampler-warmup-oom", "serving-oom")
"""Causes whose memory the model knows least."""

_DEAR: Cost = "output"
"""A single change as dear as this, such as much of the weights in the host's memory, is not made where one or two cheaper ones do."""

_FEW = 2
"""So many changes, a start each, are worth what the dear one costs at every step. Chosen, not measured."""

TOO_SHORT = "request-too-long"
"""The cause where the goal's context is above what is allowed."""


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
    raised = _raised_to_goal(request)
    try:
        base = judge_request(raised)
    except FitserveError:
        return advised
    sees_failure = raised is not request or level(base, request) != Level.CONFIDENT
    if advised.advice is not None and not sees_failure:
        return advised
    search = _Search(raised, base, launch, tried, bounds)
    cause = cause_now(base) if diagnosis.cause == TOO_SHORT else diagnosis.cause
    found = search.best(cause, spared=_in_vain(request, diagnosis.cause)) or search.best(cause)
    if found is not None:
        return Choice(advice=_first(found, request, raised, diagnosis.cause), skipped=advised.skipped)
    if base.unknown is not None:
        return advised
    return _only_unjudged(advised, raised, base)


def _in_vain(request: Request, cause: str) -> frozenset[str]:
    """The setting that was changed last, where what runs out of memory beside the cache still does: another one comes first."""
    if cause not in BESIDE_CACHE or len(request.observed) < 2:
        return frozenset()
    before, now = request.observed[-2:]
    if before.failed != cause:
        return frozenset()
    names = {*before.given, *now.given}
    return frozenset(name for name in names if before.given.get(name) != now.given.get(name))


def _raised_to_goal(request: Request) -> Request:
    """The question with the goal's context, where less is allowed now."""
    goal = request.goal.context
    now = _length(request)
    if goal is None or now is None or now >= goal:
        return request
    return msgspec.structs.replace(request, given={**request.given, "max_model_len": goal})


def _length(request: Request) -> int | None:
    """The context as the settings give it; None where they do not."""
    try:
        return resolve_request(request).options.max_model_len
    except FitserveError:
        return None


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

    def best(self, cause: str, spared: frozenset[str] = frozenset()) -> Candidate | None:
        """One move that is likely to serve; else the first of the fewest that are; else of those that might."""
        if level(self.base, self.request) == Level.CONFIDENT and cause == GOAL_NOT_MET:
            return Candidate(moves=(), changes={}, cost="free", judged=self.base, level=Level.CONFIDENT)

        def usable(move: Move, value: Any) -> bool:
            return move.flag not in spared and self.usable(move, value)

        singles = single_moves(self.request, self.base, cause=cause, usable=usable)
        likely = cheapest(one for one in singles if one.level <= Level.EXPECTED)
        if likely is None:
            return next(iter(few_moves(self.request, self.base, cause=cause, usable=usable)), None)
        if likely.rank < COSTS.index(_DEAR):
            return likely
        return self._spared(likely, cause, usable) or likely

    def _spared(self, dear: Candidate, cause: str, usable: Usable) -> Candidate | None:
        """One or two moves that are cheaper than the one, and expected to serve with a margin; None where none are."""

        def allowed(move: Move, value: Any) -> bool:
            return move.flag not in dear.changes and usable(move, value)

        found = few_moves(self.request, self.base, cause=cause, usable=allowed)
        few = (one for one in found if one.level == Level.CONFIDENT and len(one.moves) <= _FEW)
        cheap = (one for one in few if one.rank < dear.rank)
        return next((one for one in cheap if has_margin(one.judged.resolved, one.judged.ranks)), None)


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


def _first(found: Candidate, request: Request, raised: Request, cause: str) -> Advice:
    """The change to begin with: one that gets rid of the cause by itself, where there is one."""
    goal = raised.given.get("max_model_len")
    if not found.moves or cause == TOO_SHORT:
        return Advice(
            flag="max_model_len",
            value_from=request.given.get("max_model_len"),
            to=goal,
            direction="up",
            cost="free",
            why=f"the goal's context; {_expected(found, raised)}",
            predicted=_predicted(found.judged),
        )
    alone = [judge_request(request, {each.flag: found.changes[each.flag]}) for each in found.moves]
    at = next((at for at, judged in enumerate(alone) if cause_now(judged) != cause), 0)
    move = found.moves[at]
    value = found.changes[move.flag]
    before = request.given.get(move.flag, getattr(resolve_request(request).options, move.flag, None))
    further = [each for each in found.moves if each is not move]
    words = [f"{each.flag} {found.changes[each.flag]}" for each in further]
    if raised is not request and move.flag != "max_model_len":
        words.append(f"max_model_len {goal}")
    more = f"; {' and '.join(words)} will be needed too" if words else ""
    return Advice(
        flag=move.flag,
        value_from=before if isinstance(before, int | float | str) else None,
        to=value,
        direction=_direction(before, value),
        cost=cost_of(move, request),
        why=f"{move.saves}; {_expected(found, raised)}{more}",
        predicted=_predicted(alone[at]),
    )


def _predicted(judged: Judged) -> dict[str, Any]:
    cache = judged.cache
    return {
        "verdict": judged.verdict,
        "kv_tokens": cache.tokens if isinstance(cache, KvCache) else 0,
        "max_concurrency": round(judged.concurrency(), 2),
        "max_model_len": judged.resolved.options.max_model_len,
    }


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
