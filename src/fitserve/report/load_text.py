"""The load of a verification as text: a row for each number of requests at once, and the knee."""

import textwrap
from typing import Any

from fitserve.verify.curve import LoadCurve, Point, load_curve
from fitserve.verify.verification import Verification

_COLUMNS = (
    ("at once", 7),
    ("first token", 16),
    ("between tokens", 16),
    ("whole", 16),
    ("tokens/s", 9),
    ("KV cache", 8),
    ("ran", 5),
    ("waited", 6),
    ("preempted", 9),
)
SHOWN_LAG_SECONDS = 0.03
"""A client that is late by so much says so."""

_DISPENSABLE = ("between tokens", "whole")
"""What a narrow terminal goes without, in this order; the JSON has all of it."""


def load_lines(verification: Verification, width: int) -> list[str]:
    """The ramp as a table, the knee, and what the prefix cache gave."""
    curve = load_curve(verification)
    if curve is None:
        return []
    shown = [name for name, _ in _COLUMNS]
    if all(point.first_token_p50_seconds is None for point in curve.points):
        shown = [name for name in shown if name not in ("first token", "between tokens")]
    for name in _DISPENSABLE:
        if name in shown and len(_row(dict(zip(shown, shown, strict=True)))) > width:
            shown.remove(name)
    table = _row({name: name for name in shown})
    blind = "" if curve.knee.metrics else "; without /metrics, KV cache, waits and preemptions are not seen"
    lines = [*_wrap(f"load: {curve.workload}; times are p50, p99{blind}", width), table]
    for point in curve.points:
        cells = _cells(point)
        lines.append(_row({name: cells[name] for name in shown}))
    lag = max(point.client_lag_seconds for point in curve.points)
    if lag >= SHOWN_LAG_SECONDS:
        lines += _wrap(
            f"  busy machine: the client itself was late by up to {time_words(lag)}; times may be too long by it",
            width,
        )
    lines += ["", *_wrap(f"knee: {knee_words(_knee(curve))} ({curve.workload})", width)]
    return lines + [line for words in _prefix_cache(verification.numbers) for line in _wrap(words, width)]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _row(cells: dict[str, str]) -> str:
    return "  " + "  ".join(f"{cells[name]:>{width}}" for name, width in _COLUMNS if name in cells)


def _cells(point: Point) -> dict[str, str]:
    usage = point.kv_cache_usage_fraction
    cells = [
        f"{point.concurrency:,}",
        _pair(point.first_token_p50_seconds, point.first_token_p99_seconds),
        _pair(point.inter_token_p50_seconds, point.inter_token_p99_seconds),
        _pair(point.end_to_end_p50_seconds, point.end_to_end_p99_seconds),
        f"{point.output_tokens_per_second or point.prompt_tokens_per_second:,.0f}",
        "-" if usage is None else f"{usage:.0%}",
        *("-" if seen is None else f"{seen:,}" for seen in (point.running, point.waiting, point.preemptions)),
    ]
    return dict(zip((name for name, _ in _COLUMNS), cells, strict=True))


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{time_words(low)}, {time_words(high)}"


def time_words(seconds: float) -> str:
    """A measured time in three digits: ``4.2 ms``, ``310 ms``, ``2.35 s``."""
    if seconds >= 1:
        return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def _knee(curve: LoadCurve) -> dict[str, Any]:
    import msgspec

    built: dict[str, Any] = msgspec.to_builtins(curve.knee)
    return built


def knee_words(knee: dict[str, Any]) -> str:
    """Where the server stopped taking more, as a sentence."""
    clean = knee["highest_clean"]
    if knee["concurrency"] is None:
        blind = "" if knee["metrics"] else "; without /metrics, preemptions and waits are not seen"
        return f"none up to {clean} at once{blind}"
    events = [
        f"{words} at {knee[key]} at once"
        for key, words in (
            ("first_error", "the first error"),
            ("first_preemption", "the first preemption"),
            ("first_waiting", "the first wait for room"),
        )
        if knee[key] is not None
    ]
    before = f"; {clean} at once went without" if clean is not None else ""
    return f"{', '.join(events)}{before}"


def _prefix_cache(numbers: dict[str, Any]) -> list[str]:
    steps = (numbers.get("load") or {}).get("ramp", [])
    pressures = [step["pressure"] for step in steps if step.get("pressure")]
    asked = sum(pressure["prefix_cache_query_tokens"] or 0 for pressure in pressures)
    found = sum(pressure["prefix_cache_hit_tokens"] or 0 for pressure in pressures)
    if not asked:
        return []
    return [f"prefix cache: {found:,} of {asked:,} prompt tokens were found there, the rest was computed"]
