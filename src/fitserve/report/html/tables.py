"""The page's tables as values."""

from collections.abc import Sequence

import msgspec

from fitserve.plan.values import FrontierPoint
from fitserve.report.charts.frontier import line_name
from fitserve.report.load_text import time_words
from fitserve.report.verification_text import result_word
from fitserve.verify.curve import LoadCurve
from fitserve.verify.verification import Verification


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under headings; the first cell of a row is its heading.

    Attributes:
        caption: what the table is.
        heads: one a column.
        rows: as many cells each.
        numeric_from: the columns from here on are figures, and stand to the right.
    """

    caption: str
    heads: list[str]
    rows: list[list[str]]
    numeric_from: int = 99


def check_table(verification: Verification | None) -> Table | None:
    """Every check, in the order of their asking."""
    if verification is None:
        return None
    rows = [
        [
            check.name,
            result_word(check),
            check.expected,
            check.actual,
            f"{check.seconds:.2f}" if check.seconds else "",
        ]
        for check in verification.checks
    ]
    heads = ["check", "result", "expected", "actual", "seconds"]
    return Table(caption="Every check", heads=heads, rows=rows, numeric_from=4)


def load_table(curve: LoadCurve | None) -> Table | None:
    """The load's steps."""
    if curve is None or not curve.points:
        return None
    heads = [
        "at once",
        "first token p50",
        "p99",
        "whole p50",
        "p99",
        "tokens/s",
        "KV cache",
        "waited",
        "preempted",
        "errors",
    ]
    rows = [
        [
            f"{point.concurrency:,}",
            _time(point.first_token_p50_seconds),
            _time(point.first_token_p99_seconds),
            _time(point.end_to_end_p50_seconds),
            _time(point.end_to_end_p99_seconds),
            f"{point.output_tokens_per_second:,.0f}",
            "-" if point.kv_cache_usage_fraction is None else f"{point.kv_cache_usage_fraction:.0%}",
            _count(point.waiting),
            _count(point.preemptions),
            f"{point.errors:,}",
        ]
        for point in curve.points
    ]
    return Table(caption=f"Load: {curve.workload}", heads=heads, rows=rows, numeric_from=0)


def frontier_table(points: Sequence[FrontierPoint]) -> Table | None:
    """The frontier in figures."""
    lengths = sorted({int(length) for point in points for length in point.concurrency})
    if not lengths:
        return None
    heads = ["settings", *(f"{length:,}" for length in lengths)]
    rows = [
        [line_name(point), *(_at_once(point.concurrency.get(str(length))) for length in lengths)]
        for point in points
    ]
    return Table(caption="Requests at once, by tokens of one request", heads=heads, rows=rows, numeric_from=1)


def _at_once(value: float | None) -> str:
    return "-" if not value else f"{value:,.2f}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time_words(seconds)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
