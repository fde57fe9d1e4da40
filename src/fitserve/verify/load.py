"""(o) Load: requests of one shape, more and more at once."""

import asyncio
import time

import msgspec

from fitserve.verify.answer import Answer
from fitserve.verify.ask import explain_idle_queue
from fitserve.verify.metrics import Gauges
from fitserve.verify.prompts import Prompts
from fitserve.verify.session import Session
from fitserve.verify.steps import Step, judge_together, summarize
from fitserve.verify.verification import Check

READING_SECONDS = 0.2
"""Between readings of ``/metrics`` during a step: short against a request, long against the page's own cost."""


def ramp_concurrencies(end: int) -> list[int]:
    """1, 2, 4 ... and the end itself."""
    powers = [1 << exponent for exponent in range(end.bit_length()) if 1 << exponent < end]
    return [*powers, end]


def fit_shape(input_tokens: int, output_tokens: int, max_model_len: int | None) -> tuple[int, int]:
    """The ramp's shape, made smaller where the server's context is."""
    if max_model_len is None:
        return input_tokens, output_tokens
    out = max(1, min(output_tokens, max_model_len // 2))
    return max(1, min(input_tokens, max_model_len - out)), out


async def check_ramp(session: Session, prompts: Prompts) -> list[Step]:
    """Go up to the goal; without one, to the first preemption. An error ends it: more load would prove nothing."""
    options = session.options
    shape = fit_shape(options.input_tokens, options.output_tokens, session.served.max_model_len)
    steps: list[Step] = []
    for concurrency in ramp_concurrencies(options.ramp_concurrency):
        name = f"load-{concurrency}"
        expected = f"{concurrency} at once of {shape[0]:,} + {shape[1]:,} tokens: all answered"
        step = await run_step(session, prompts, concurrency, shape, rounds=options.rounds)
        if step is None:
            session.skip(name, expected, "no prompt of exactly that many tokens could be fitted")
            break
        steps.append(step)
        actual = judge_together(step)[1] if step.errors else describe(step)
        session.record(step_check(name, step, expected, actual, step.error_type))
        if step.errors or (options.goal_concurrency is None and step.preemptions):
            break
    return steps


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


def describe(step: Step) -> str:
    """What a step without errors has shown."""
    parts = [f"all {step.requests} answered, {step.output_tokens_per_second:,.0f} output tokens/s"]
    if step.first_token_seconds is not None:
        first = step.first_token_seconds
        parts.append(f"first token p50 {first.p50:.2f} s, p99 {first.p99:.2f} s")
    if step.preemptions:
        parts.append(f"{step.preemptions} preemptions")
    if step.pressure is not None and step.waited_for_room:
        parts.append(f"{step.pressure.max_waiting} waited, at most {step.seen_at_once} ran")
    return "; ".join(parts)


async def run_step(
    session: Session, prompts: Prompts, concurrency: int, shape: tuple[int, int], *, rounds: int
) -> Step | None:
    """Keep that many requests in flight, ``rounds`` times each; None where no prompt could be made.

    Prompts are made before the clock starts. ``/metrics`` is read before, during and after.
    """
    requests = [await prompts.request(session, *shape) for _ in range(concurrency * rounds)]
    bodies = [msgspec.json.encode(request) for request in requests if request is not None]
    if len(bodies) < len(requests):
        return None
    readings: list[Gauges] = []
    await _read_once(session, readings)
    reader = asyncio.create_task(_keep_reading(session, readings))
    start = time.perf_counter()
    try:
        places = [bodies[place::concurrency] for place in range(concurrency)]
        answers = await asyncio.gather(*(_one_place(session, prompts, place, shape[1]) for place in places))
        seconds = time.perf_counter() - start
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    deadline = session.options.deadline_seconds
    flat = [explain_idle_queue(answer, readings, deadline) for place in answers for answer in place]
    await _read_once(session, readings)
    return summarize(concurrency, shape, flat, seconds, readings)


async def _one_place(
    session: Session, prompts: Prompts, bodies: list[bytes], max_tokens: int
) -> list[Answer]:
    answers = []
    for body in bodies:
        answer = await session.client.stream(
            prompts.path, body, session.options.deadline_seconds, max_tokens=max_tokens
        )
        answers.append(answer)
        if not answer.ok:
            break
    return answers


async def _read_once(session: Session, readings: list[Gauges]) -> None:
    gauges = await session.gauges()
    if gauges is not None:
        readings.append(gauges)


async def _keep_reading(session: Session, readings: list[Gauges]) -> None:
    """Read until cancelled; stop at once where there is nothing to read."""
    while readings:
        await _read_once(session, readings)
        await asyncio.sleep(min(READING_SECONDS, session.options.deadline_seconds / 5))
