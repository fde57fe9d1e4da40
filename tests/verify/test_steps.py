"""What steps of load say: percentiles, pressure, the knee, and whether requests were served at once."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.report.load_text import knee_words
from fitserve.units import to_builtins
from fitserve.verify.answer import Answer
from fitserve.verify.goals import together_shape
from fitserve.verify.load import ramp_concurrencies
from fitserve.verify.metrics import Gauges
from fitserve.verify.steps import (
    Knee,
    Pressure,
    Step,
    find_knee,
    judge_together,
    measure_pressure,
    most_at_once,
    spread,
    summarize,
)
from fitserve.verify.workload import Size, fit_size


def step(concurrency: int, pressure: Pressure | None = None, errors: dict[str, int] | None = None) -> Step:
    """A step of requests of 100 tokens."""
    errors = errors or {}
    answered = concurrency - sum(errors.values())
    return Step(
        concurrency=concurrency,
        prompt_tokens=90,
        output_tokens=10,
        requests=concurrency,
        answered=answered,
        counted_output_tokens=10 * answered,
        errors=errors,
        seconds=1.0,
        pressure=pressure,
    )


def pressure(
    *,
    running: int | None,
    waiting: int = 0,
    preemptions: int = 0,
    short: bool = False,
    holds: int | None = None,
) -> Pressure:
    """What was seen during a step."""
    return Pressure(
        preemptions=preemptions,
        max_running=running,
        max_waiting=waiting,
        kv_cache_wait=short,
        kv_cache_tokens=holds,
        readings=5,
    )


CLEAN = [step(1, pressure(running=1)), step(2, pressure(running=2))]

# steps, knee
KNEES: dict[str, tuple[list[Step], Knee]] = {
    "no limit": (CLEAN, Knee(highest_clean=2, metrics=True)),
    "no metrics": ([step(1), step(2)], Knee(highest_clean=2)),
    "nothing was asked": ([], Knee()),
    "preemption": (
        [*CLEAN, step(4, pressure(running=4, preemptions=3))],
        Knee(concurrency=4, limit="preemption", first_preemption=4, highest_clean=2, metrics=True),
    ),
    "an error wins at the same step": (
        [*CLEAN, step(4, pressure(running=4, preemptions=3), {"timeout": 1})],
        Knee(concurrency=4, limit="error", first_error=4, first_preemption=4, highest_clean=2, metrics=True),
    ),
    "the first step wins over a later error": (
        [*CLEAN, step(4, pressure(running=3, waiting=1)), step(8, None, {"http-503": 8})],
        Knee(concurrency=4, limit="waiting", first_waiting=4, first_error=8, highest_clean=2, metrics=True),
    ),
    "waiting for a turn is no limit": (
        [*CLEAN, step(4, pressure(running=4, waiting=3))],
        Knee(highest_clean=4, metrics=True),
    ),
    "waiting for cache is one": (
        [*CLEAN, step(4, pressure(running=4, waiting=3, short=True))],
        Knee(concurrency=4, limit="waiting", first_waiting=4, highest_clean=2, metrics=True),
    ),
    "the very first step fails": (
        [step(1, None, {"http-500": 1})],
        Knee(concurrency=1, limit="error", first_error=1),
    ),
}


@pytest.mark.parametrize("name", KNEES)
def test_the_knee_is_the_first_limit(name: str) -> None:
    """The knee is the first step that showed an error, a preemption or a wait for room."""
    steps, knee = KNEES[name]

    assert knee == find_knee(steps)
    assert knee_words(to_builtins(knee))


# step, error type, words
TOGETHER: list[tuple[Step, str | None, str]] = [
    (step(4, pressure(running=4)), None, "4 generated at once, no preemption"),
    (step(4, pressure(running=4, holds=399)), None, "4 generated at once"),
    (msgspec.structs.replace(step(4), generating_at_once=4), None, "4 generated at once"),
    (
        msgspec.structs.replace(step(4, pressure(running=2, waiting=2, short=True)), generating_at_once=4),
        None,
        "4 generated at once",
    ),
    (step(4, pressure(running=3)), "not-at-once", "at most 3 ran at once"),
    (step(4, pressure(running=3, holds=400)), "not-at-once", "at most 3 ran at once"),
    (step(4, pressure(running=2, waiting=2)), "not-at-once", "at most 2 ran at once while 2 waited"),
    (step(4), "not-at-once", "at most 0 ran at once"),
    (step(4, pressure(running=None)), "not-at-once", "at most 0 ran at once"),
    (step(4, pressure(running=4, preemptions=2)), "preemption-thrash", "2 preemptions"),
    (step(4, pressure(running=2, waiting=2, short=True)), "waiting-for-kv-cache", "at most 2 ran"),
    (step(4, pressure(running=3, holds=399)), "waiting-for-kv-cache", "400 tokens together, 399 in"),
    (
        msgspec.structs.replace(step(4, pressure(running=4)), counted_output_tokens=39),
        "ended-early",
        "39 of 40 tokens of output",
    ),
    (step(4, pressure(running=4), {"timeout": 1, "http-503": 2}), "http-503", "1 of 4 answered"),
    (step(4, pressure(running=3, holds=399), {"timeout": 1}), "waiting-for-kv-cache", "3 of 4 answered"),
    (step(4, pressure(running=3, holds=400), {"timeout": 1}), "timeout", "3 of 4 answered"),
]


@pytest.mark.parametrize(("measured", "error_type", "words"), TOGETHER)
def test_at_once_means_at_once(measured: Step, error_type: str | None, words: str) -> None:
    """Answered one after the other, or preempted, is not served at once; seen at one moment, by gauge or by tokens, is."""
    judged = judge_together(measured)

    assert error_type == judged[0]
    assert words in judged[1]


def gauges(running: int, waiting: int, usage: float = 0.0, preemptions: int = 0) -> Gauges:
    """One reading of a cache of 1,000 tokens."""
    return Gauges(
        running=running,
        waiting=waiting,
        kv_cache_usage_fraction=usage,
        preemptions=preemptions,
        kv_cache_tokens=1000,
    )


def test_pressure_is_what_grew_and_what_was_highest() -> None:
    """Counters are differences, gauges are maxima, and a wait counts when the next reading still shows it."""
    readings = [gauges(0, 0, 0.0, 5), gauges(2, 6, 0.4, 5), gauges(3, 2, 0.95, 7), gauges(1, 0, 0.2, 9)]

    seen = measure_pressure(readings, prompt_tokens=90)

    assert seen is not None
    assert (4, 3, 6, 0.95, False) == (
        seen.preemptions,
        seen.max_running,
        seen.max_waiting,
        seen.max_kv_cache_usage_fraction,
        seen.kv_cache_wait,
    )


def test_the_requests_of_others_are_not_ours() -> None:
    """A batch that others have filled before proves nothing about our requests, which wait."""
    readings = [gauges(3, 0), gauges(4, 3), gauges(4, 3), gauges(3, 0)]
    measured = msgspec.structs.replace(step(4, measure_pressure(readings, 90)), generating_at_once=1)

    assert ("not-at-once", 1) == (judge_together(measured)[0], measured.seen_at_once)


def test_a_wait_for_cache_is_one_that_the_cache_explains() -> None:
    """A held wait is for the KV cache where its free part is smaller than a prompt."""
    readings = [gauges(0, 0), gauges(3, 2, 0.95), gauges(3, 1, 0.95), gauges(0, 0)]

    short = measure_pressure(readings, prompt_tokens=51)
    enough = measure_pressure(readings, prompt_tokens=49)

    assert short is not None
    assert enough is not None
    assert (True, False) == (short.kv_cache_wait, enough.kv_cache_wait)


def test_one_reading_is_no_measurement() -> None:
    """A difference needs two readings."""
    assert None is measure_pressure([gauges(1, 0)], prompt_tokens=1)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_measured_values_in_order(values: list[float]) -> None:
    """Percentiles rise, none is beyond the worst, and each is a value that was measured."""
    found = spread(values)

    assert found is not None
    assert found.p50 <= found.p90 <= found.p99 <= found.worst
    assert {found.p50, found.p90, found.p99, found.worst} <= {round(value, 4) for value in values}


@given(st.integers(1, 5000))
def test_a_ramp_rises_to_its_end(end: int) -> None:
    """A ramp starts at one, rises, never more than doubles, and ends at the goal."""
    ramp = ramp_concurrencies(end)

    assert (1, end) == (ramp[0], ramp[-1])
    assert all(low < high <= 2 * low for low, high in pairwise(ramp))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 10**6))
def test_a_shape_fits_the_context(prompt: int, output: int, max_model_len: int) -> None:
    """A ramp's request is never longer than the server allows, and never empty."""
    size = fit_size(Size(prompt_tokens=prompt, output_tokens=output), max_model_len)

    assert size.prompt_tokens + size.output_tokens <= max_model_len
    assert min(size.prompt_tokens, size.output_tokens) >= 1


@given(st.integers(2, 10**6), st.integers(1, 1000))
def test_requests_at_once_have_the_goal_length(total: int, concurrency: int) -> None:
    """A goal's request has exactly the goal's length, at least half of it prompt."""
    prompt, output = together_shape(total, concurrency)

    assert total == prompt + output
    assert output <= prompt + 1


def test_a_step_counts_what_the_server_counted() -> None:
    """Tokens are the server's own counts; failed requests count as errors, not as speed."""
    answers = [
        Answer(
            seconds=1.0, first_token_seconds=0.2, token_gaps_seconds=[0.1], prompt_tokens=90, output_tokens=10
        ),
        Answer(seconds=2.0, first_token_seconds=0.4, events=8, prompt_tokens=90),
        Answer(error_type="timeout", events=3),
    ]

    measured = summarize(3, (90, 10), answers, 2.0, [])

    assert (2, {"timeout": 1}, 180, 18, 9.0) == (
        measured.answered,
        measured.errors,
        measured.counted_prompt_tokens,
        measured.counted_output_tokens,
        measured.output_tokens_per_second,
    )
    assert measured.first_token_seconds is not None
    assert (0.2, 0.4) == (measured.first_token_seconds.p50, measured.first_token_seconds.p99)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10), st.floats(0, 10)), max_size=20))
def test_what_generates_at_once_overlaps(times: list[tuple[float, float, float]]) -> None:
    """As many generate at once as share one moment: the highest count at any answer's first token."""
    answers = [
        Answer(started_seconds=start, first_token_seconds=first, seconds=first + rest)
        for start, first, rest in times
    ]
    spans = [(start + first, start + (first + rest)) for start, first, rest in times]

    counts = [sum(low <= moment < high for low, high in spans) for moment, _ in spans]

    assert max(counts, default=0) == most_at_once(answers)
