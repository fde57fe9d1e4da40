"""The series of a load's chart: latency and KV cache usage over concurrency. Pure; drawing is a report's."""

from typing import Any

import msgspec

from fitserve.verify.steps import Knee, Step
from fitserve.verify.verification import Verification


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the ramp, as a chart needs it; None where it was not seen.

    Attributes:
        concurrency: requests in flight at once: the horizontal axis.
        first_token_p50_seconds: time to the first token.
        first_token_p99_seconds: the slowest percent.
        inter_token_p50_seconds: between one token and the next.
        inter_token_p99_seconds: the slowest percent.
        end_to_end_p50_seconds: the whole request.
        end_to_end_p99_seconds: the slowest percent.
        output_tokens_per_second: over all requests.
        prompt_tokens_per_second: likewise; what counts where a model has no output.
        kv_cache_usage_fraction: the fullest reading, 0 to 1.
        running: most requests that ran at one moment, by the server's gauge or by their own tokens.
        waiting: most requests waiting.
        preemptions: during the step.
        errors: requests that were not answered whole.
        client_lag_seconds: by how much the times may be too long, for this machine was busy.
    """

    concurrency: int
    first_token_p50_seconds: float | None = None
    first_token_p99_seconds: float | None = None
    inter_token_p50_seconds: float | None = None
    inter_token_p99_seconds: float | None = None
    end_to_end_p50_seconds: float | None = None
    end_to_end_p99_seconds: float | None = None
    output_tokens_per_second: float = 0.0
    prompt_tokens_per_second: float = 0.0
    kv_cache_usage_fraction: float | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    errors: int = 0
    client_lag_seconds: float = 0.0


class LoadCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The ramp as series.

    Attributes:
        workload: what a request was, in words.
        points: in the order of their concurrency.
        knee: where the server stopped taking more.
    """

    workload: str = ""
    points: list[Point] = []
    knee: Knee = Knee()


def draw_points(steps: list[Step]) -> list[Point]:
    """Each step as a point."""
    return [_point(step) for step in sorted(steps, key=lambda step: step.concurrency)]


def _point(step: Step) -> Point:
    first, gap, whole, seen = (
        step.first_token_seconds,
        step.inter_token_seconds,
        step.end_to_end_seconds,
        step.pressure,
    )
    return Point(
        concurrency=step.concurrency,
        first_token_p50_seconds=first.p50 if first else None,
        first_token_p99_seconds=first.p99 if first else None,
        inter_token_p50_seconds=gap.p50 if gap else None,
        inter_token_p99_seconds=gap.p99 if gap else None,
        end_to_end_p50_seconds=whole.p50 if whole else None,
        end_to_end_p99_seconds=whole.p99 if whole else None,
        output_tokens_per_second=step.output_tokens_per_second,
        prompt_tokens_per_second=round(step.counted_prompt_tokens / step.seconds, 1) if step.seconds else 0.0,
        kv_cache_usage_fraction=seen.max_kv_cache_usage_fraction if seen else None,
        running=step.seen_at_once or None,
        waiting=seen.max_waiting if seen else None,
        preemptions=seen.preemptions if seen else None,
        errors=sum(step.errors.values()),
        client_lag_seconds=step.client_lag_seconds,
    )


def load_curve(verification: Verification) -> LoadCurve | None:
    """The curve of a verification, also of one that was read from a journal; None where no load was asked."""
    value: Any = verification.numbers.get("curve")
    return None if not value else msgspec.convert(value, LoadCurve)
