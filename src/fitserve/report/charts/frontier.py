"""How many requests of each length fit, by settings: the frontier, with the chosen point."""

from collections.abc import Sequence
from typing import Any

from fitserve.plan.values import FrontierPoint
from fitserve.report.charts.theme import INK, SERIES, SURFACE, chart, legend_columns, log_axis

MOST_LINES = 6


def line_name(point: FrontierPoint) -> str:
    """The settings of a line in a few words."""
    graphs = ", no graphs" if point.enforce_eager else ""
    return f"cache {point.kv_cache_dtype}, tp {point.tensor_parallel_size}, share {point.gpu_memory_utilization:g}{graphs}"


def frontier_spec(
    points: Sequence[FrontierPoint], chosen: tuple[int, float] | None, width_px: int
) -> dict[str, Any]:
    """Requests at once over the length of one, both by doubling; the chosen settings are the ringed point.

    Args:
        points: the frontier.
        chosen: tokens of one request, and how many fit at once; None where that is not known.
        width_px: of the drawing.
    """
    lines = [point for point in points if any(point.concurrency.values())][:MOST_LINES]
    rows: list[dict[str, Any]] = [
        {"length": int(length), "at_once": at_once, "line": line_name(point)}
        for point in lines
        for length, at_once in point.concurrency.items()
        if at_once > 0
    ]
    names = [line_name(point) for point in lines]
    x = {
        "field": "length",
        "type": "quantitative",
        "title": "tokens of one request",
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {
            "grid": False,
            "format": ",d",
            "values": sorted({row["length"] for row in rows}),
            "labelOverlap": True,
        },
    }
    y = {"field": "at_once", **log_axis("requests at once", [row["at_once"] for row in rows] or [1])}
    layer: list[dict[str, Any]] = [
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 26, "filled": True}},
            "encoding": {
                "x": x,
                "y": y,
                "color": {
                    "field": "line",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": names, "range": list(SERIES[: len(names)])},
                    "legend": {
                        "columns": legend_columns(width_px - 40, names),
                        "symbolType": "stroke",
                        "symbolStrokeWidth": 3,
                    },
                },
            },
        }
    ]
    if chosen is not None and chosen[1] > 0:
        layer.append(
            {
                "data": {"values": [{"length": chosen[0], "at_once": chosen[1]}]},
                "mark": {
                    "type": "point",
                    "size": 220,
                    "stroke": INK,
                    "strokeWidth": 3,
                    "fill": SURFACE,
                    "fillOpacity": 0,
                    "opacity": 1,
                },
                "encoding": {"x": x, "y": y},
            }
        )
    return chart(width_px, 320, data={"values": rows}, layer=layer)
