"""What one step of load was, and what the steps together say: pure arithmetic over measured values."""

import math
from collections import Counter
from itertools import pairwise
from typing import Literal

import msgspec

from fitserve.verify.answer import Answer
from fitserve.verify.metrics import Gauges


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of measured seconds (nearest rank: each is a value that was measured)."""

    p50: float
    p90: float
    p99: float
    worst: float


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """What ``/metrics`` showed from before a step's first request to after its last answer.

    Attributes:
        preemptions: during the step.
        running_before: requests in the batch at the first reading: somebody else's.
        max_running: most requests in the batch at any reading.
        max_waiting: most requests waiting, held over two readings.
        kv_cache_usage_before_fraction: the first reading.
        max_kv_cache_usage_fraction: the fullest reading.
        kv_cache_usage_after_fraction: the last reading.
        kv_cache_wait: at such a wait, the free part of the KV cache was smaller than a prompt.
        kv_cache_tokens: what the cache holds.
        prefix_cache_hit_tokens: prompt tokens that were not computed but found.
        prefix_cache_query_tokens: prompt tokens looked up.
        readings: of ``/metrics`` during the step.
    """

    preemptions: int | None = None
    running_before: int | None = None
    max_running: int | None = None
    max_waiting: int = 0
    kv_cache_usage_before_fraction: float | None = None
    max_kv_cache_usage_fraction: float | None = None
    kv_cache_usage_after_fraction: float | None = None
    kv_cache_wait: bool = False
    kv_cache_tokens: int | None = None
    prefix_cache_hit_tokens: int | None = None
    prefix_cache_query_tokens: int | None = None
    readings: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A number of requests of one shape, in flight at once.

    Attributes:
        concurrency: requests in flight at once.
        prompt_tokens: asked of each; where sizes differ, the largest.
        output_tokens: likewise.
        requests: how many were sent.
        answered: how many were answered whole.
        errors: the others by error type.
        seconds: from the first request to the last answer.
        first_token_seconds: time to the first token.
        inter_token_seconds: between one token and the next.
        end_to_end_seconds: the whole request.
        counted_prompt_tokens: tokens in, all requests, as the server counted them.
        counted_output_tokens: tokens out.
        counted_cached_tokens: of the prompts, found in the prefix cache, where the answers say so.
        output_tokens_per_second: over the step.
        generating_at_once: most requests that were between their first and their last token at one moment, as we saw it.
        client_lag_seconds: the longest that this process was late for its own work: times may be too long by as much.
        pressure: what ``/metrics`` showed meanwhile; None where the server has none.
    """

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    requests: int
    answered: int
    errors: dict[str, int] = {}
    seconds: float
    first_token_seconds: Spread | None = None
    inter_token_seconds: Spread | None = None
    end_to_end_seconds: Spread | None = None
    counted_prompt_tokens: int = 0
    counted_output_tokens: int = 0
    counted_cached_tokens: int = 0
    output_tokens_per_second: float = 0.0
    generating_at_once: int = 0
    client_lag_seconds: float = 0.0
    pressure: Pressure | None = None

    @property
    def preemptions(self) -> int:
        """Preemptions that were seen."""
        return (self.pressure.preemptions or 0) if self.pressure else 0

    @property
    def found_fraction(self) -> float:
        """The part of the prompts that was found in the prefix cache: it took no room of its own and no computing."""
        hits = self.pressure.prefix_cache_hit_tokens if self.pressure else None
        found = max(hits or 0, self.counted_cached_tokens)
        return found / self.counted_prompt_tokens if self.counted_prompt_tokens else 0.0

    @property
    def seen_at_once(self) -> int:
        """Requests that ran at one moment, by the server's gauge or by their own tokens; who ran before is none of them."""
        seen = self.pressure
        running = (seen.max_running or 0) - (seen.running_before or 0) if seen else 0
        return max(self.generating_at_once, running)

    @property
    def waited_for_room(self) -> bool:
        """True where requests waited for KV cache, or waited and never ran all at once.

        A wait alone is none: prompts are read one after the other, within ``max_num_batched_tokens`` a step.
        """
        seen = self.pressure
        if seen is None or not seen.max_waiting:
            return False
        return seen.kv_cache_wait or self.seen_at_once < self.concurrency

    @property
    def error_type(self) -> str | None:
        """The most frequent error."""
        return max(self.errors, key=self.errors.__getitem__) if self.errors else None


Limit = Literal["error", "preemption", "waiting"]


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server stops taking more at once.

    Attributes:
        concurrency: the first step that showed a limit; None where none did.
        limit: which limit it showed first: an error before a preemption before a wait for room.
        first_error: the first step with an error.
        first_preemption: the first step with a preemption.
        first_waiting: the first step whose requests waited for room.
        highest_clean: the highest step before the knee.
        metrics: ``/metrics`` was there to see preemptions and waits.
    """

    concurrency: int | None = None
    limit: Limit | None = None
    first_error: int | None = None
    first_preemption: int | None = None
    first_waiting: int | None = None
    highest_clean: int | None = None
    metrics: bool = False


def spread(values: list[float]) -> Spread | None:
    """Percentiles by nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    ranks = [ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.50, 0.90, 0.99)]
    p50, p90, p99 = (round(value, 4) for value in ranks)
    return Spread(p50=p50, p90=p90, p99=p99, worst=round(ordered[-1], 4))


def summarize(
    concurrency: int,
    shape: tuple[int, int],
    answers: list[Answer],
    seconds: float,
    readings: list[Gauges],
    *,
    client_lag_seconds: float = 0.0,
) -> Step:
    """One step from its answers and its readings of ``/metrics``.

    Args:
        concurrency: requests in flight at once.
        shape: prompt tokens and output tokens of each.
        answers: one a request.
        seconds: the whole step.
        readings: from before the first request to after the last, in order.
        client_lag_seconds: the longest that this process was late.
    """
    whole = [answer for answer in answers if answer.ok]
    output = sum(answer.output_tokens or answer.events for answer in whole)
    return Step(
        concurrency=concurrency,
        prompt_tokens=shape[0],
        output_tokens=shape[1],
        requests=len(answers),
        answered=len(whole),
        errors=dict(Counter(answer.error_type for answer in answers if answer.error_type)),
        seconds=round(seconds, 3),
        first_token_seconds=spread(
            [a.first_token_seconds for a in whole if a.first_token_seconds is not None]
        ),
        inter_token_seconds=spread([gap for answer in whole for gap in answer.token_gaps_seconds]),
        end_to_end_seconds=spread([answer.seconds for answer in whole]),
        counted_prompt_tokens=sum(answer.prompt_tokens or 0 for answer in whole),
        counted_output_tokens=output,
        counted_cached_tokens=sum(answer.cached_tokens or 0 for answer in whole),
        output_tokens_per_second=round(output / seconds, 1) if seconds > 0 else 0.0,
        generating_at_once=most_at_once(whole),
        client_lag_seconds=round(client_lag_seconds, 4),
        pressure=measure_pressure(readings, shape[0]),
    )


def most_at_once(answers: list[Answer]) -> int:
    """The most answers that were between their first token and their end at one moment."""
    return _most_overlapping(
        [
            (answer.started_seconds + answer.first_token_seconds, answer.started_seconds + answer.seconds)
            for answer in answers
            if answer.first_token_seconds is not None
        ]
    )


def most_in_flight(answers: list[Answer]) -> int:
    """The most requests that were between sending and their end at one moment."""
    return _most_overlapping(
        [(answer.started_seconds, answer.started_seconds + answer.seconds) for answer in answers]
    )


def _most_overlapping(spans: list[tuple[float, float]]) -> int:
    most = now = 0
    for _, change in sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans]):
        now += change
        most = max(most, now)
    return most


def measure_pressure(readings: list[Gauges], prompt_tokens: int) -> Pressure | None:
    """What the readings show, oldest first; None of fewer than two."""
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    waits = _held_waits(readings)
    usages = [
        reading.kv_cache_usage_fraction for reading in readings if reading.kv_cache_usage_fraction is not None
    ]
    return Pressure(
        preemptions=_growth(first.preemptions, last.preemptions),
        running_before=first.running,
        max_running=max((r.running for r in readings if r.running is not None), default=None),
        max_waiting=max((r.waiting or 0 for r in waits), default=0),
        kv_cache_usage_before_fraction=_rounded(first.kv_cache_usage_fraction),
        max_kv_cache_usage_fraction=_rounded(max(usages, default=None)),
        kv_cache_usage_after_fraction=_rounded(last.kv_cache_usage_fraction),
        kv_cache_wait=any(_is_short_of_cache(reading, prompt_tokens) for reading in waits),
        kv_cache_tokens=last.kv_cache_tokens,
        prefix_cache_hit_tokens=_growth(first.prefix_cache_hit_tokens, last.prefix_cache_hit_tokens),
        prefix_cache_query_tokens=_growth(first.prefix_cache_query_tokens, last.prefix_cache_query_tokens),
        readings=len(readings),
    )


def _rounded(fraction: float | None) -> float | None:
    return None if fraction is None else round(fraction, 4)


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _held_waits(readings: list[Gauges]) -> list[Gauges]:
    """Readings whose waiting requests the next one still shows: a request that is being taken waits for one step."""
    return [now for now, later in pairwise(readings) if now.waiting and later.waiting]


def _is_short_of_cache(reading: Gauges, prompt_tokens: int) -> bool:
    """True where what is free of the KV cache cannot hold one more prompt."""
    if reading.kv_cache_usage_fraction is None or reading.kv_cache_tokens is None:
        return False
    return (1 - reading.kv_cache_usage_fraction) * reading.kv_cache_tokens < prompt_tokens


def find_knee(steps: list[Step]) -> Knee:
    """The first step that showed a limit, and every kind of limit's first step."""
    firsts: dict[Limit, int | None] = {
        "error": next((step.concurrency for step in steps if step.errors), None),
        "preemption": next((step.concurrency for step in steps if step.preemptions), None),
        "waiting": next((step.concurrency for step in steps if step.waited_for_room), None),
    }
    seen = [at for at in firsts.values() if at is not None]
    knee = min(seen, default=None)
    clean = [step.concurrency for step in steps if knee is None or step.concurrency < knee]
    return Knee(
        concurrency=knee,
        limit=next((limit for limit, at in firsts.items() if at is not None and at == knee), None),
        first_error=firsts["error"],
        first_preemption=firsts["preemption"],
        first_waiting=firsts["waiting"],
        highest_clean=max(clean, default=None),
        metrics=any(step.pressure is not None for step in steps),
    )


MAX_FOUND_FRACTION = 0.1
"""Prompts of which more was found in the prefix cache prove nothing about room. A chat template's first lines are found rightly."""


UNPROVEN = frozenset({"prefix-cache-hits", "ended-early"})
"""Error types of requests that were all answered and took less than they were to take: neither a yes nor a no."""


def judge_together(step: Step) -> tuple[str | None, str]:
    """Were all requests of a step served, at once, and each in room of its own? The error type, or None, and the words."""
    each = step.prompt_tokens + step.output_tokens
    seen, at_once = step.pressure, step.seen_at_once
    needed, holds = step.concurrency * each, seen.kv_cache_tokens if seen else None
    sizes = f"; {needed:,} tokens together, {holds:,} in the KV cache" if holds else ""
    if step.errors:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(step.errors.items()))
        only_late = set(step.errors) == {"timeout"} and holds and needed > holds
        error_type = "waiting-for-kv-cache" if only_late else step.error_type
        return error_type, f"{step.answered} of {step.requests} answered; {kinds}{sizes if only_late else ''}"
    answered = f"all {step.requests} of {each:,} tokens answered"
    if step.output_tokens == 0:
        return None, answered
    waited = f" while {seen.max_waiting} waited" if seen and seen.max_waiting else ""
    if step.preemptions:
        found = "preemption-thrash", f"{step.preemptions} preemptions: the KV cache does not hold them all"
    elif step.found_fraction > MAX_FOUND_FRACTION:
        return (
            "prefix-cache-hits",
            f"{answered}, but {step.found_fraction:.0%} of the prompts came from the prefix cache",
        )
    elif step.counted_output_tokens < step.output_tokens * step.answered:
        asked = step.output_tokens * step.answered
        return (
            "ended-early",
            f"{answered}, but with {step.counted_output_tokens:,} of {asked:,} tokens of output",
        )
    elif at_once >= step.concurrency:
        return None, f"{answered}; {at_once} generated at once" + (", no preemption" if seen else "")
    elif (seen and seen.kv_cache_wait) or (holds and needed > holds):
        found = "waiting-for-kv-cache", f"at most {at_once} ran while others waited for KV cache{sizes}"
    else:
        found = "not-at-once", f"at most {at_once} ran at once{waited}"
    return found[0], f"{answered}, but not at once: {found[1]}"


def describe(step: Step) -> str:
    """What a step without errors has shown."""
    speed = f"{step.output_tokens_per_second:,.0f} output tokens/s"
    parts = [f"all {step.requests} answered" + (f", {speed}" if step.output_tokens else "")]
    if step.preemptions:
        parts.append(f"{step.preemptions} preemptions")
    if step.pressure is not None and step.waited_for_room:
        parts.append(f"{step.pressure.max_waiting} waited, at most {step.seen_at_once} ran")
    if step.found_fraction > MAX_FOUND_FRACTION:
        parts.append(
            f"{step.found_fraction:.0%} of the prompts came from the prefix cache: faster than new ones"
        )
    return "; ".join(parts)
