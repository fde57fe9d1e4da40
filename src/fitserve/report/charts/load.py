"""What a load showed: latency and KV cache usage over the number of requests at once."""

from typing import Any

from fitserve.report.charts.theme import SERIES, chart, legend_columns, log_axis
from fitserve.verify.curve import LoadCurve

LATENCIES = {
    "first_token_p50_seconds": "first token, p50",
    "first_token_p99_seconds": "first token, p99",
    "end_to_end_p50_seconds": "whole request, p50",
    "end_to_end_p99_seconds": "whole request, p99",
}
_X = {
    "field": "concurrency",
    "type": "quantitative",
    "title": "requests at once",
    "scale": {"type": "log", "base": 2, "nice": False},
}


def latency_spec(curve: LoadCurve, width_px: int) -> dict[str, Any]:
    """Seconds over requests at once; both axes by doubling."""
    rows = [
        {"concurrency": point.concurrency, "seconds": value, "line": words}
        for point in curve.points
        for name, words in LATENCIES.items()
        if (value := getattr(point, name)) is not None and value > 0
    ]
    names = [words for words in LATENCIES.values() if any(row["line"] == words for row in rows)]
    dashes = [[4, 3] if "p99" in name else [1, 0] for name in names]
    colours = [SERIES[0] if "first" in name else SERIES[4] for name in names]
    line = {"field": "line", "type": "nominal", "title": None}
    columns = {
        "columns": min(2, legend_columns(width_px - 40, names)),
        "symbolType": "stroke",
        "symbolStrokeWidth": 3,
    }
    return chart(
        width_px,
        300,
        data={"values": rows},
        mark={"type": "line", "point": {"size": 40, "filled": True}, "strokeWidth": 2},
        encoding={
            "x": _x(curve),
            "y": {"field": "seconds", **log_axis("seconds", [row["seconds"] for row in rows] or [1])},
            "color": {**line, "scale": {"domain": names, "range": colours}, "legend": columns},
            "strokeDash": {**line, "scale": {"domain": names, "range": dashes}, "legend": columns},
        },
    )


def usage_spec(curve: LoadCurve, width_px: int) -> dict[str, Any]:
    """The fullest reading of the KV cache over requests at once."""
    rows = [
        {"concurrency": point.concurrency, "usage": point.kv_cache_usage_fraction}
        for point in curve.points
        if point.kv_cache_usage_fraction is not None
    ]
    return chart(
        width_px,
        220,
        data={"values": rows},
        mark={
            "type": "line",
            "point": {"size": 40, "filled": True, "color": SERIES[4]},
            "strokeWidth": 2,
            "color": SERIES[4],
        },
        encoding={
            "x": _x(curve),
            "y": {
                "field": "usage",
                "type": "quantitative",
                "title": "KV cache in use",
                "axis": {"format": ".0%", "tickCount": 5},
                "scale": {"domain": [0, 1]},
            },
        },
    )


def has_usage(curve: LoadCurve) -> bool:
    """True where ``/metrics`` showed it."""
    return any(point.kv_cache_usage_fraction is not None for point in curve.points)


def _x(curve: LoadCurve) -> dict[str, Any]:
    values = sorted({point.concurrency for point in curve.points})
    return {**_X, "axis": {"grid": False, "values": values, "format": "d", "labelOverlap": True}}
