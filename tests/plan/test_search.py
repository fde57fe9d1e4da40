"""The search for changes: the surest, then the cheapest, and what comes first is spared."""

from typing import Any

import msgspec
import pytest

from fitserve.plan.make import make_plan
from fitserve.plan.moves.move import Scene
from fitserve.plan.moves.table import MOVES
from fitserve.plan.request import Request, judge_request
from fitserve.plan.search import COSTS, Level, cause_now, cheapest, few_moves, level, single_moves
from fitserve.plan.values import Goal
from tests.plan.test_observed import request


def asked(gpu: str = "RTX 4090", goal: Goal | None = None, gpus: int = 1, **given: Any) -> Request:
    """The 8B model on a device."""
    return msgspec.structs.replace(request(gpu=gpu), goal=goal or Goal(), given=given, gpus=gpus)


def names(found: Request) -> dict[str, tuple[Level, int]]:
    """Each move's best level and rank against what is wrong now."""
    base = judge_request(found)
    best: dict[str, tuple[Level, int]] = {}
    for one in single_moves(found, base, cause=cause_now(base), usable=lambda *_: True):
        best[one.moves[-1].name] = min(
            best.get(one.moves[-1].name, (one.level, one.rank)), (one.level, one.rank)
        )
    return best


def test_the_cheapest_sure_move_is_taken() -> None:
    """A shorter context is sure and costs capacity; more devices are sure and dearer."""
    found = asked(gpus=4, max_model_len=65536)
    base = judge_request(found)
    best = cheapest(single_moves(found, base, cause=cause_now(base), usable=lambda *_: True))

    assert best is not None
    assert (best.moves[0].name, best.level, best.cost) == ("shorter-context", Level.CONFIDENT, "capacity")


@pytest.mark.parametrize(
    ("first", "move", "dearer"),
    [
        ("latency", "eager", 1),
        ("throughput", "eager", 1),
        ("latency", "more-stages", 1),
        ("throughput", "more-stages", 0),
    ],
)
def test_what_comes_first_is_spared(first: Any, move: str, dearer: int) -> None:
    """A move that is bad for what comes first counts as one step dearer."""
    plain = names(asked(gpus=4, max_model_len=65536))
    aimed = names(asked(gpus=4, max_model_len=65536, goal=Goal(first=first)))

    assert aimed[move][1] - plain[move][1] == dearer


@pytest.mark.parametrize(("concurrency", "fewest"), [(None, 8), (2, 2), (20, 32)])
def test_sequences_are_not_cut_to_a_handful_that_nobody_asked_for(
    concurrency: int | None, fewest: int
) -> None:
    """As few as the goal needs; without one enough to share a device."""
    found = asked(goal=Goal(concurrency=concurrency), max_model_len=4096)
    move = next(move for move in MOVES if move.name == "fewer-sequences")

    assert fewest == min(move.values(Scene(request=found, base=judge_request(found))))


def test_few_moves_are_as_few_as_it_takes() -> None:
    """What two moves can do is not done by three, and every answer serves the goal for sure."""
    found = asked(goal=Goal(context=40960, concurrency=2), max_model_len=40960, max_num_batched_tokens=16384)
    base = judge_request(found)
    several = few_moves(found, base, cause=cause_now(base), usable=lambda *_: True)

    assert several
    assert len({len(one.moves) for one in several}) == 1
    for one in several:
        assert level(judge_request(found, one.changes), found) == one.level
    ranks = [one.rank for one in several]
    assert ranks == sorted(ranks)
    assert all(one.cost in COSTS for one in several)


def test_a_goal_out_of_reach_has_no_answer() -> None:
    """A thousand long requests on one small device: no few moves do."""
    found = asked(goal=Goal(context=65536, concurrency=1000), max_model_len=65536)
    base = judge_request(found)

    assert level(base, found) == Level.NO
    assert few_moves(found, base, cause=cause_now(base), usable=lambda *_: True) == []


def test_rows_that_nobody_needs_make_room_for_the_goal() -> None:
    """The sampler's rows of many sequences are taken from the cache: with fewer of them the goal's requests fit."""
    wide = {"max_model_len": 4096, "max_num_seqs": 1024, "max_num_batched_tokens": 2048}
    found = asked(goal=Goal(context=4096, concurrency=9), **wide)

    assert level(judge_request(found), found) > Level.EXPECTED
    assert names(found)["fewer-sequences"][0] == Level.CONFIDENT


def test_a_share_without_room_for_a_full_step_is_no_answer() -> None:
    """It starts, the first full batch finds no memory: the plan has a note, and a smaller share is what helps."""
    full = asked(max_model_len=4096, gpu_memory_utilization=0.96, max_num_batched_tokens=16384)
    roomy = asked(max_model_len=4096, gpu_memory_utilization=0.9, max_num_batched_tokens=2048)
    told = [any("first full batch" in note for note in make_plan(one).notes) for one in (full, roomy)]

    assert [True, False] == told
    assert cause_now(judge_request(full)) == "serving-oom"
    assert level(judge_request(full), full) > Level.EXPECTED
    assert names(full)["smaller-share"][0] == Level.CONFIDENT


def test_a_pinned_cache_is_made_as_small_as_what_is_beside_it_needs() -> None:
    """Not a fixed part of what was given: the first smaller size that is tried starts, and fills the device."""
    found = asked(max_model_len=4096, kv_cache_memory_bytes=40 << 30)
    move = next(move for move in MOVES if move.name == "cache-pinned-smaller")
    first = next(
        value
        for value in move.values(Scene(request=found, base=judge_request(found)))
        if level(judge_request(found, {"kv_cache_memory_bytes": value}), found) == Level.CONFIDENT
    )

    assert first > 4 << 30


def test_the_block_that_is_never_handed_out_does_not_count() -> None:
    """A cache of exactly the goal's blocks holds one request less than V1 prints."""
    goal = Goal(context=4096, concurrency=8)
    exact = 8 * 4096 * 131072
    found = asked(goal=goal, max_model_len=4096, kv_cache_memory_bytes=exact)
    more = asked(goal=goal, max_model_len=4096, kv_cache_memory_bytes=exact + 16 * 131072)

    assert judge_request(found).concurrency() == 8.0
    assert level(judge_request(found), found) == Level.NO
    assert level(judge_request(more), more) == Level.CONFIDENT
