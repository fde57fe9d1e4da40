"""(o) Open load: requests that arrive at their own times, whether or not earlier ones are answered.

A closed loop slows down with the server and hides its queue; users do not. A server that cannot keep the rate shows it here:
more and more requests are in flight, and the first token comes later and later.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from fitserve.verify.answer import Answer
from fitserve.verify.ask import explain_idle_queue
from fitserve.verify.load import encode_request, largest, own_lag, send_sized, size_words, step_check, watched
from fitserve.verify.options import MAX_IN_FLIGHT
from fitserve.verify.prompts import Prompts
from fitserve.verify.session import Session
from fitserve.verify.steps import Step, describe, judge_together, most_in_flight, spread, summarize
from fitserve.verify.workload import Size, Workload

WINDOW_SECONDS = 20.0
QUICK_WINDOW_SECONDS = 5.0
MAX_REQUESTS = 5000
GROWING_FRACTION = 0.2
"""Of the arriving requests, the part that may stay unanswered in the second half of the window."""

LATER_RATIO = 2.0
"""How much later the first token comes at the end than at the middle where a queue grows."""


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """When requests are to be sent.

    Attributes:
        words: the load for a person.
        sizes: each with its time in seconds from the start, in order.
    """

    words: str
    sizes: tuple[Size, ...]


def plan_arrivals(
    workload: Workload,
    max_model_len: int | None,
    *,
    rate: float | None,
    window_seconds: float,
    generates: bool = True,
) -> Arrivals | None:
    """The requests of a window: a Poisson process of that rate, else the times of the trace; None where neither is known.

    Source: independent users make exponential gaps, as vLLM 0.32.0 ``benchmarks/serve.py`` draws them (burstiness 1).
    """
    sizes = workload.sizes(max_model_len, generates=generates)
    if rate is not None:
        number = max(1, min(MAX_REQUESTS, round(rate * window_seconds)))
        moment = 0.0
        taken = []
        dice = random.Random()  # noqa: S311 - times are no secrets
        for _ in range(number):
            taken.append(msgspec.structs.replace(next(sizes), at_seconds=moment))
            moment += dice.expovariate(rate)
        return Arrivals(words=f"{number:,} requests, {rate:g} a second", sizes=tuple(taken))
    if not workload.timed:
        return None
    recorded = [next(sizes) for _ in workload.trace[:MAX_REQUESTS]]
    inside = tuple(size for size in recorded if (size.at_seconds or 0.0) <= window_seconds)
    return Arrivals(words=f"{len(inside):,} recorded requests at their times", sizes=inside)


async def check_open_loop(session: Session, prompts: Prompts, workload: Workload) -> Step | None:
    """Send requests at their times and see whether the server keeps up."""
    options = session.options
    window = QUICK_WINDOW_SECONDS if options.profile == "quick" else WINDOW_SECONDS
    if options.minutes is not None and options.request_rate is None:
        window = max(window, 60 * options.minutes)
    arrivals = plan_arrivals(
        workload,
        session.served.max_model_len,
        rate=options.request_rate,
        window_seconds=window,
        generates=prompts.generates,
    )
    if arrivals is None:
        return None
    expected = f"{arrivals.words}, of {size_words(arrivals.sizes)}: all answered, no growing queue"
    found = await _run(session, prompts, arrivals)
    if found is None:
        session.skip("open-loop", expected, "no prompt of exactly that many tokens could be fitted")
        return None
    step, answers, unsent = found
    error_type, actual = step.error_type, judge_together(step)[1] if step.errors else describe(step)
    if step.first_token_seconds is not None:
        first = step.first_token_seconds
        actual += f"; first token p50 {first.p50:.2f} s, p99 {first.p99:.2f} s"
    if error_type is None and (unsent or is_falling_behind(answers)):
        error_type = "rate-not-sustained"
        actual = f"the queue grows: at most {step.concurrency} in flight, {actual}"
    actual += workload.cut_words(session.served.max_model_len, generates=prompts.generates)
    if unsent:
        actual += f"; {unsent} were not sent, for {MAX_IN_FLIGHT:,} were in flight"
    session.record(step_check("open-loop", step, expected, actual, error_type))
    return step


async def _run(
    session: Session, prompts: Prompts, arrivals: Arrivals
) -> tuple[Step, list[Answer], int] | None:
    """The load as one step, its answers in the order of sending, and how many requests were held back."""
    tasks: list[asyncio.Task[Answer]] = []
    in_flight: set[asyncio.Task[Answer]] = set()
    unsent = 0
    made = await _make_texts(session, prompts, arrivals)
    if made is None:
        return None
    async with watched(session) as readings, own_lag() as lags:
        start = time.perf_counter()
        try:
            for number, size in enumerate(arrivals.sizes):
                raw = made[number] if made else await encode_request(session, prompts, size) or b""
                await asyncio.sleep(max(0.0, start + (size.at_seconds or 0.0) - time.perf_counter()))
                if len(in_flight) >= MAX_IN_FLIGHT:
                    unsent += 1
                    continue
                task = asyncio.create_task(send_sized(session, prompts, raw, size))
                tasks.append(task)
                in_flight.add(task)
                task.add_done_callback(in_flight.discard)
            answers = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        seconds = time.perf_counter() - start
        deadline = session.options.deadline_seconds
        answers = [explain_idle_queue(answer, readings, deadline) for answer in answers]
    most = most_in_flight(answers)
    step = summarize(
        max(1, most), largest(arrivals.sizes), answers, seconds, readings, client_lag_seconds=max(lags)
    )
    return step, answers, unsent


async def _make_texts(session: Session, prompts: Prompts, arrivals: Arrivals) -> list[bytes] | None:
    """Requests whose text has to be fitted are made beforehand; ids are drawn as they are sent, to hold few of them.

    Returns:
        Nothing where ids are drawn; None where no text could be fitted.
    """
    if prompts.pool:
        return []
    made = [await encode_request(session, prompts, size) for size in arrivals.sizes]
    whole = [raw for raw in made if raw is not None]
    return whole if len(whole) == len(made) else None


def is_falling_behind(answers: list[Answer]) -> bool:
    """Does a queue grow? Answers lag behind arrivals in the second half of the window, and first tokens come later and later.

    Args:
        answers: in the order in which they were sent.
    """
    if len(answers) < 8:
        return False
    starts = [answer.started_seconds for answer in answers]
    middle, end = starts[len(starts) // 2], starts[-1]
    open_at = [_open_at(answers, moment) for moment in (middle, end)]
    arrived = len(answers) - len(answers) // 2
    lagging = open_at[1] - open_at[0] > max(2.0, GROWING_FRACTION * arrived)
    quarters = list(_first_token_medians(answers))
    return lagging and quarters[-1] > LATER_RATIO * quarters[0]


def _open_at(answers: list[Answer], moment: float) -> int:
    return sum(
        answer.started_seconds <= moment < answer.started_seconds + answer.seconds for answer in answers
    )


def _first_token_medians(answers: list[Answer]) -> Iterator[float]:
    """The median time to the first token of the first and of the last quarter."""
    bounds = [0, len(answers) // 4, 3 * len(answers) // 4, len(answers)]
    for index, (low, high) in enumerate(pairwise(bounds)):
        if index == 1:
            continue
        times = [a.first_token_seconds or a.seconds for a in answers[low:high]]
        found = spread(times)
        yield found.p50 if found else 0.0
