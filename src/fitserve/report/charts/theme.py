"""How every chart looks: colours are the page's CSS variables, so that one drawing serves light and dark."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

INK = "var(--ink)"
QUIET = "var(--quiet)"
GRID = "var(--line)"
SURFACE = "var(--surface)"
SERIES = tuple(f"var(--series-{n})" for n in range(1, 9))
FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"

CHARACTER_PX = 7.5
"""A generous width of one character: the reader's font may be wider than the one that was measured."""

CONFIG: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "aria": False,
    "axis": {
        "labelColor": QUIET,
        "titleColor": QUIET,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "titlePadding": 8,
        "labelLimit": 150,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": QUIET,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "bottom",
        "symbolType": "square",
        "symbolStrokeWidth": 0,
        "labelLimit": 260,
        "columnPadding": 18,
        "rowPadding": 4,
        "offset": 10,
    },
    "text": {"color": INK, "fontSize": 12, "font": FONT},
    "range": {"category": list(SERIES)},
}


def chart(width_px: int, height_px: int, **parts: Any) -> dict[str, Any]:
    """A Vega-Lite spec of one size, with the padding inside the size."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width_px,
        "height": height_px,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": 2,
        "config": CONFIG,
        **parts,
    }


def legend_columns(room_px: float, names: Sequence[str]) -> int:
    """How many entries of a legend stand side by side in a width."""
    entry_px = CHARACTER_PX * max(map(len, names), default=1) + 46
    return max(1, min(len(names), int(room_px // entry_px)))


def log_ticks(values: Sequence[float]) -> list[float]:
    """Where a logarithmic axis has lines: powers of ten, with 2 and 5 times them where there are few; both ends covered.

    Args:
        values: what is drawn, all above 0.
    """
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    first = max((tick for tick in ticks if tick <= min(values)), default=ticks[0])
    last = min((tick for tick in ticks if tick >= max(values)), default=ticks[-1])
    return [round(tick, 9) for tick in ticks if first <= tick <= max(last, first * 10)]


def log_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic vertical axis for some values: its title, scale and lines."""
    ticks = log_ticks(values)
    return {
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": [ticks[0], ticks[-1]], "nice": False},
        "axis": {"values": ticks, "format": "~g"},
    }
