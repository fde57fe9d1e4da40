"""What people do by hand: two scripts that start vLLM again and again, on the hidden truth of a case."""

from collections.abc import Callable
from typing import Any

from bench._starts_cases import Case, keeps_goal, play

MOST_STARTS = 12
_LEAST_CHANGE = 256
_STEP = 0.05


def bisect_length(case: Case, longest: int) -> int | None:
    """Halve ``max_model_len`` until it starts, then bisect up until the goal is kept; the starts, None where it never is."""
    low, high = 0, int(case.given.get("max_model_len") or longest)

    def serves(length: int) -> tuple[bool, bool]:
        ending = play(case, {**case.given, "max_model_len": length}, case.environ)
        return ending.cause is None, keeps_goal(case, ending)

    length, starts = high, 1
    while starts < MOST_STARTS:
        if low == 0:
            length //= 2
        elif high - low > _LEAST_CHANGE:
            length = (low + high) // 2
        else:
            return None
        if length < _LEAST_CHANGE:
            return None
        starts += 1
        started, kept = serves(length)
        if kept:
            return starts
        low, high = (length, high) if started else (low, length)
    return None


def step_utilization(case: Case, default: float) -> int | None:
    """Lower ``gpu_memory_utilization`` by 0.05 until the goal is kept; the starts, None where it never is."""
    share, starts = float(case.given.get("gpu_memory_utilization", default)), 1
    while starts < MOST_STARTS and share - _STEP > 0.05:
        share, starts = round(share - _STEP, 4), starts + 1
        given: dict[str, Any] = {**case.given, "gpu_memory_utilization": share}
        if keeps_goal(case, play(case, given, case.environ)):
            return starts
    return None


Script = Callable[[Case], int | None]
