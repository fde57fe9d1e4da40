"""Looks for the changes that make a start serve the goal: one move, or as few as it takes."""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from fitserve.diagnose.finding import Cost
from fitserve.errors import FitserveError
from fitserve.plan.checks import Problem
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Move, Scene
from fitserve.plan.moves.table import MOVES
from fitserve.plan.request import Request, judge_request, scheduled_at

COSTS: tuple[Cost, ...] = ("free", "capacity", "speed", "hardware", "output")
"""Cheapest first."""

GOAL_NOT_MET = "goal-not-met"
"""Stands for a cause where a start would serve, but less than the goal."""

_MOST_VALUES = 7
"""Values of one move that are judged."""

_MOST_MOVES = 3
_KEPT = 5
"""Starts of each cost that are looked at further when one move does not do."""


class Level(IntEnum):
    """How sure it is that a start serves the goal: with the least memory that is likely, with the expected, with the most."""

    CONFIDENT = 0
    EXPECTED = 1
    POSSIBLE = 2
    NO = 3


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that were judged.

    Attributes:
        moves: the moves, in the order of the table.
        changes: their settings by name.
        cost: the dearest of them.
        rank: how dear that is here, 0 the cheapest.
        judged: the start with them.
        level: how sure it is that it serves the goal.
    """

    moves: tuple[Move, ...]
    changes: dict[str, Any]
    cost: Cost
    rank: int = 0
    judged: Judged
    level: Level


Usable = Callable[[Move, Any], bool]
"""Whether a move may be made with a value."""


def level(judged: Judged, request: Request) -> Level:
    """How sure it is that a start serves the goal."""
    for end, found in enumerate((Level.CONFIDENT, Level.EXPECTED, Level.POSSIBLE)):
        if _starts(judged, end) and _holds(judged, request, end):
            return found
    return Level.NO


def _starts(judged: Judged, end: int) -> bool:
    """True where it starts, and has room for a full step then."""
    serving = judged.serving
    if serving is not None and (serving.sure if end == Level.POSSIBLE else serving.expected):
        return False
    if judged.verdict != "cannot-tell" or end == Level.CONFIDENT:
        return judged.verdict == "starts"
    if judged.unknown is not None:
        return False
    return end == Level.POSSIBLE or judged.problem is None or not judged.problem.expected


def _holds(judged: Judged, request: Request, end: int) -> bool:
    """The goal's context and concurrency, with the least, the expected or the most memory."""
    length = judged.resolved.options.max_model_len or 0
    goal = request.goal
    if goal.context is not None and length < goal.context:
        return False
    if goal.concurrency is None:
        return True
    is_many = judged.resolved.options.max_num_seqs >= goal.concurrency
    return is_many and scheduled_at(request, judged, goal.context or length, end) >= goal.concurrency


def cause_now(judged: Judged) -> str:
    """Why a start would not serve the goal."""
    problem = problem_now(judged)
    return GOAL_NOT_MET if problem is None else problem.cause


def problem_now(judged: Judged) -> Problem | None:
    """What keeps a start from succeeding, or what it has succeeded for from being served; None where nothing does."""
    if judged.problem is not None or judged.serving is None:
        return judged.problem
    return judged.serving if judged.serving.expected else None


def single_moves(
    request: Request,
    base: Judged,
    *,
    cause: str,
    usable: Usable,
    before: Candidate | None = None,
) -> list[Candidate]:
    """Each move that helps against the cause, with the smallest value that serves for sure.

    Where none does, with several: the surest, the smallest that gets rid of the cause, and the largest.

    Args:
        request: the question.
        base: the start as it is now.
        cause: why it does not serve.
        usable: which moves may be made, with which values.
        before: moves that are made already.
    """
    scene = Scene(request=request, base=base)
    made = before.moves if before else ()
    changed = before.changes if before else {}
    found: list[Candidate] = []
    for move in MOVES:
        if not move.fits(cause, request.version) or move.flag in changed:
            continue
        values = _thinned([value for value in move.values(scene) if usable(move, value)])
        found += _worthwhile(request, (*made, move), changed, values, cause)
    return found


def _worthwhile(
    request: Request, moves: tuple[Move, ...], changed: dict[str, Any], values: list[Any], cause: str
) -> list[Candidate]:
    """The values of the last move that are worth a further look."""
    tried: list[Candidate] = []
    for value in values:
        one = _judged(request, moves, {**changed, moves[-1].flag: value})
        if one is None:
            continue
        if one.level == Level.CONFIDENT:
            return [one]
        tried.append(one)
    if not tried:
        return []
    surest = min(tried, key=lambda one: one.level)
    rid = [one for one in tried if cause_now(one.judged) != cause]
    kept = [surest, *rid[:1], *rid[len(rid) // 2 :][:1], tried[len(tried) // 2], tried[-1]]
    return list({id(one): one for one in kept}.values())


def few_moves(request: Request, base: Judged, *, cause: str, usable: Usable) -> list[Candidate]:
    """As few moves as it takes to serve the goal, at most three, as surely as can be; cheapest first.

    Each move is one that helps against what is left of the failure after the moves before it.

    Args:
        request: the question.
        base: the start as it is now.
        cause: why it does not serve.
        usable: which moves may be made, with which values.
    """
    starts = single_moves(request, base, cause=cause, usable=usable)
    seen: list[Candidate] = []
    for _ in range(_MOST_MOVES):
        seen += [one for one in starts if one.level < Level.NO]
        serving = [one for one in starts if one.level == Level.CONFIDENT]
        if serving:
            return sorted(_without_twins(serving), key=_order)
        further = sorted(starts, key=lambda one: (one.level, one.rank))
        starts = [
            found
            for start in _spread(further)
            for found in single_moves(
                request, start.judged, cause=cause_now(start.judged), usable=usable, before=start
            )
        ]
    surest = min((one.level for one in seen), default=Level.NO)
    return sorted(_without_twins(one for one in seen if one.level == surest), key=_order)


def _spread(starts: Sequence[Candidate]) -> list[Candidate]:
    """Some of the starts, of every cost, the dearest last."""
    kept: list[Candidate] = []
    for cost in COSTS:
        kept += [one for one in starts if one.cost == cost][:_KEPT]
    return kept


def _without_twins(found: Iterable[Candidate]) -> list[Candidate]:
    """Of the same moves in another order or with other values the one that keeps the most."""
    best: dict[frozenset[str], Candidate] = {}
    for one in found:
        known = best.get(frozenset(one.changes))
        if known is None or _keeps(one) > _keeps(known):
            best[frozenset(one.changes)] = one
    return list(best.values())


def _keeps(one: Candidate) -> tuple[int, int, int]:
    """The context and the sequences that are left, and how little is put off to the host."""
    options = one.judged.resolved.options
    return options.max_model_len or 0, options.max_num_seqs, -options.cpu_offload_bytes


def _order(one: Candidate) -> tuple[int, int, int]:
    return one.rank, len(one.changes), max(MOVES.index(move) for move in one.moves)


def cost_of(move: Move, request: Request) -> Cost:
    """What a move costs here: the context that is the goal costs nothing."""
    is_goal = move.flag == "max_model_len" and request.goal.context is not None
    return "free" if is_goal else move.cost


def _rank(move: Move, request: Request) -> int:
    """How dear a move is: by its cost and its own steps, and a step more where it is bad for what comes first."""
    return COSTS.index(cost_of(move, request)) + move.dear + (request.goal.first in move.hurts)


def _judged(request: Request, moves: tuple[Move, ...], changes: dict[str, Any]) -> Candidate | None:
    try:
        judged = judge_request(request, changes)
    except FitserveError:
        return None
    cost = max((cost_of(move, request) for move in moves), key=COSTS.index)
    return Candidate(
        moves=moves,
        changes=changes,
        cost=cost,
        rank=max(_rank(move, request) for move in moves),
        judged=judged,
        level=level(judged, request),
    )


def _thinned(values: list[Any]) -> list[Any]:
    """Not too many of them, the first and the last among them."""
    if len(values) <= _MOST_VALUES:
        return values
    steps = _MOST_VALUES - 1
    return [values[round(at * (len(values) - 1) / steps)] for at in range(_MOST_VALUES)]


def cheapest(found: Iterable[Candidate]) -> Candidate | None:
    """The surest, then the cheapest, then the first."""
    return min(found, key=lambda one: (one.level, one.rank), default=None)
