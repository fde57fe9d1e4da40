"""(o) Load: more and more requests at once, each place sending its next when the last is answered."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from fitserve.verify.answer import Answer, miscount
from fitserve.verify.ask import explain_idle_queue, send_raw
from fitserve.verify.checks import judge_pooling
from fitserve.verify.metrics import Gauges
from fitserve.verify.prompts import Prompts
from fitserve.verify.session import Session
from fitserve.verify.steps import Step, describe, judge_together, summarize
from fitserve.verify.verification import Check
from fitserve.verify.workload import Size, Workload

READING_SECONDS = 0.2
READING_PART = 0.05
"""Between readings of ``/metrics``: the page may take a twentieth of the server's time, for vLLM makes it where it streams tokens (5
to 17 ms were measured with vLLM 0.32.0 on a busy CPU)."""

MAX_READING_SECONDS = 2.0

STEP_SECONDS = 1.0
"""A step of the full profile lasts at least so long: shorter ones are over between two readings."""


def ramp_concurrencies(end: int) -> list[int]:
    """1, 2, 4 ... and the end itself."""
    powers = [1 << exponent for exponent in range(end.bit_length()) if 1 << exponent < end]
    return [*powers, end]


async def check_ramp(session: Session, prompts: Prompts, workload: Workload) -> list[Step]:
    """Go up to the goal; without one, to the first preemption. An error ends it: more load would prove nothing."""
    options = session.options
    sizes = workload.sizes(session.served.max_model_len, generates=prompts.generates)
    steps: list[Step] = []
    for concurrency in ramp_concurrencies(options.ramp_concurrency):
        name = f"load-{concurrency}"
        taken = list(islice(sizes, concurrency * options.rounds))
        expected = f"{concurrency} at once, {size_words(taken)}: answered"
        more = sizes if options.profile == "full" else None
        step = await run_step(session, prompts, concurrency, taken, more=more)
        if step is None:
            session.skip(name, expected, "no prompt of exactly that many tokens could be fitted")
            break
        steps.append(step)
        actual = judge_together(step)[1] if step.errors else describe(step)
        actual += workload.cut_words(session.served.max_model_len, generates=prompts.generates)
        session.record(step_check(name, step, expected, actual, step.error_type))
        if step.errors or (options.goal_concurrency is None and step.preemptions):
            break
    return steps


def size_words(sizes: Sequence[Size]) -> str:
    """Requests' sizes for a person: ``128 + 32``, or the ranges that they span."""
    ranges = []
    for counts in ([size.prompt_tokens for size in sizes], [size.output_tokens for size in sizes]):
        low, high = min(counts), max(counts)
        ranges.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    return f"{ranges[0]} tokens" if ranges[1] == "0" else f"{ranges[0]} + {ranges[1]}"


def step_check(name: str, step: Step, expected: str, actual: str, error_type: str | None) -> Check:
    """A check of one step; it passed where no error type is left."""
    return Check(
        name=name,
        passed=error_type is None,
        expected=expected,
        actual=actual,
        seconds=step.seconds,
        prompt_tokens=step.counted_prompt_tokens,
        output_tokens=step.counted_output_tokens,
        concurrency=step.concurrency,
        error_type=error_type,
    )


async def run_step(
    session: Session,
    prompts: Prompts,
    concurrency: int,
    sizes: Sequence[Size],
    *,
    more: Iterator[Size] | None = None,
) -> Step | None:
    """Send these requests, so many of them in flight at any time; None where no prompt could be made.

    The first prompt of each place is made before the clock starts, the later ones between its requests.

    Args:
        session: the verification.
        prompts: how requests are made.
        concurrency: requests in flight.
        sizes: what is sent.
        more: sent after these until the step has lasted ``STEP_SECONDS``.
    """
    firsts = [await encode_request(session, prompts, size) for size in sizes[:concurrency]]
    ready = [raw for raw in firsts if raw is not None]
    if len(ready) < len(firsts):
        return None
    sent = list(sizes)
    async with watched(session) as readings, own_lag() as lags:
        start = time.perf_counter()
        queue = _queue(sizes[concurrency:], more, start + STEP_SECONDS, sent)
        answers = await asyncio.gather(
            *(_one_place(session, prompts, raw, size, queue) for raw, size in zip(ready, sizes, strict=False))
        )
        seconds = time.perf_counter() - start
        deadline = session.options.deadline_seconds
        flat = [explain_idle_queue(answer, readings, deadline) for place in answers for answer in place]
    return summarize(concurrency, largest(sent), flat, seconds, readings, client_lag_seconds=max(lags))


def _queue(
    sizes: Sequence[Size], more: Iterator[Size] | None, end: float, sent: list[Size]
) -> Iterator[Size]:
    """What is left to send: these, then more until the end, which are noted as sent."""
    yield from sizes
    while more is not None and time.perf_counter() < end:
        sent.append(next(more))
        yield sent[-1]


def largest(sizes: Sequence[Size]) -> tuple[int, int]:
    """The longest prompt and the longest output."""
    return max(size.prompt_tokens for size in sizes), max(size.output_tokens for size in sizes)


async def encode_request(session: Session, prompts: Prompts, size: Size) -> bytes | None:
    """A request of that size with a fresh prompt; None where no text could be fitted."""
    body = await prompts.request(session, size.prompt_tokens, size.output_tokens)
    return None if body is None else msgspec.json.encode(body)


async def send_sized(session: Session, prompts: Prompts, raw: bytes, size: Size) -> Answer:
    """Send one request of a load, within the deadline; an answer to another question than was asked is none."""
    max_tokens = size.output_tokens if prompts.generates else None
    answer = await send_raw(
        session, prompts.path, raw, session.options.deadline_seconds, max_tokens=max_tokens
    )
    error_type = _misses(prompts, size, answer) if answer.ok else None
    return msgspec.structs.replace(answer, error_type=error_type) if error_type else answer


def _misses(prompts: Prompts, size: Size, answer: Answer) -> str | None:
    """Why a whole answer is not the one that was asked for: cut, miscounted, or without numbers. None where it is."""
    broken = None if prompts.generates else judge_pooling(answer)[0]
    whole_output = bool(prompts.extras)
    return broken or miscount(answer, size.prompt_tokens, size.output_tokens, whole_output=whole_output)


async def _one_place(
    session: Session, prompts: Prompts, raw: bytes | None, size: Size, queue: Iterator[Size]
) -> list[Answer]:
    """One request after the other until none is left or one fails."""
    answers: list[Answer] = []
    while raw is not None:
        answers.append(await send_sized(session, prompts, raw, size))
        following = next(queue, None) if answers[-1].ok else None
        if following is None:
            break
        size = following
        raw = await encode_request(session, prompts, size)
    return answers


@asynccontextmanager
async def watched(session: Session) -> AsyncIterator[list[Gauges]]:
    """Readings of ``/metrics`` from before to after what is done inside, in order; empty where there is no such page."""
    readings: list[Gauges] = []
    await _read_once(session, readings)
    reader = asyncio.create_task(_keep_reading(session, readings))
    try:
        yield readings
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    await _read_once(session, readings)


LAG_PACE_SECONDS = 0.05


@asynccontextmanager
async def own_lag() -> AsyncIterator[list[float]]:
    """By how many seconds this process was late for what it wanted to do inside: on a busy machine the times are its own."""
    lags = [0.0]

    async def measure() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(LAG_PACE_SECONDS)
            lags.append(time.perf_counter() - start - LAG_PACE_SECONDS)

    task = asyncio.create_task(measure())
    try:
        yield lags
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _read_once(session: Session, readings: list[Gauges]) -> None:
    gauges = await session.gauges()
    if gauges is not None:
        readings.append(gauges)


async def _keep_reading(session: Session, readings: list[Gauges]) -> None:
    """Read until cancelled; stop at once where there is nothing to read."""
    longest = min(READING_SECONDS, session.options.deadline_seconds / 5)
    while readings:
        start = time.perf_counter()
        await _read_once(session, readings)
        took = time.perf_counter() - start
        await asyncio.sleep(min(max(longest, took / READING_PART), MAX_READING_SECONDS))
