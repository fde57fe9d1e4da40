"""After the proof: what is left is spent on a longer context or on more requests, with a margin for traffic."""

from math import floor
from typing import Literal

from fitserve.diagnose.finding import Advice
from fitserve.plan.judge import Judged
from fitserve.plan.moves.move import Scene
from fitserve.plan.moves.values import higher_shares
from fitserve.plan.request import Request, concurrency_at, judge_request
from fitserve.plan.search import Level, level

Aim = Literal["context", "concurrency"]

_MARGIN = 1.1
"""Requests that the cache holds more than are wanted: the margin for traffic."""

_WORTH = 1.1
"""What is won must be at least a tenth more, to be worth a start."""

_ALIGN = 16


def growth(request: Request, aim: Aim) -> Advice | None:
    """The change that spends what is left; None where too little is.

    Args:
        request: the proven launch, with what its start has shown.
        aim: what to spend it on.
    """
    base = judge_request(request)
    if base.unknown is not None:
        return None
    return _longer(request, base) if aim == "context" else _more(request, base)


def _longer(request: Request, base: Judged) -> Advice | None:
    """The longest context of which as many as wanted still fit, with the margin."""
    now = base.resolved.options.max_model_len or 0
    wanted = (request.goal.concurrency or 1) * _MARGIN
    low, high = now, base.resolved.context.limit
    while low < high:
        middle = (low + high + 1) // 2
        if concurrency_at(request, base, middle, 0) >= wanted:
            low = middle
        else:
            high = middle - 1
    length = low if low == base.resolved.context.limit else low // _ALIGN * _ALIGN
    if length < now * _WORTH or judge_request(request, {"max_model_len": length}).verdict != "starts":
        return None
    return Advice(
        flag="max_model_len",
        value_from=now,
        to=length,
        direction="up",
        cost="free",
        why=f"the cache holds {wanted:g} requests of {length:,} tokens",
        predicted={"max_model_len": length},
    )


def _more(request: Request, base: Judged) -> Advice | None:
    """As many sequences as the cache holds, or the largest share of the device that is free."""
    options = base.resolved.options
    length = request.goal.context or options.max_model_len or 0
    many = concurrency_at(request, base, length, 0)
    if floor(many / _MARGIN) >= options.max_num_seqs * _WORTH:
        to = floor(many / _MARGIN)
        return Advice(
            flag="max_num_seqs",
            value_from=options.max_num_seqs,
            to=to,
            direction="up",
            cost="free",
            why=f"the cache holds {many:.1f} requests of {length:,} tokens",
        )
    for share in reversed(list(higher_shares(Scene(request=request, base=base)))):
        after = judge_request(request, {"gpu_memory_utilization": share})
        gained = concurrency_at(request, after, length, 0)
        if level(after, request) == Level.CONFIDENT and gained >= many * _WORTH:
            return Advice(
                flag="gpu_memory_utilization",
                value_from=options.gpu_memory_utilization,
                to=share,
                direction="up",
                cost="free",
                why=f"{gained:.1f} instead of {many:.1f} requests of {length:,} tokens",
                predicted={"max_concurrency": round(gained, 2)},
            )
    return None
