"""The memory of one trial over its time, with the phases of the start marked."""

from collections.abc import Iterator
from typing import Any

from fitserve.report.charts.theme import CHARACTER_PX, INK, QUIET, SERIES, chart, legend_columns
from fitserve.trial.outcome import Samples, Trial
from fitserve.units import GIB

MOST_POINTS = 240
"""Points of one line: more than a page is wide do not show."""

FEWEST_POINTS = 60
"""The same where many devices share a drawing."""

OWN, OTHER, RESIDENT = "this trial", "other processes", "resident memory"


def over_time_spec(trial: Trial, samples: Samples, width_px: int) -> dict[str, Any]:
    """Lines over seconds since the launch; a rule with its name where each phase begins, one where a device ends."""
    rows = list(_rows(samples))
    names = list(dict.fromkeys(row["line"] for row in rows))
    end = samples.seconds[-1]
    phases = [
        {"at": phase.start_seconds, "phase": phase.stage}
        for phase in trial.phases
        if phase.start_seconds <= end
    ]
    x = {"field": "seconds", "type": "quantitative", "title": "seconds after the launch"}
    lines = {
        "mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-after"},
        "encoding": {
            "x": {**x, "axis": {"grid": False, "tickCount": 6}, "scale": {"nice": False}},
            "y": {"field": "gib", "type": "quantitative", "title": "GiB", "axis": {"tickCount": 5}},
            "color": {
                "field": "line",
                "type": "nominal",
                "title": None,
                "scale": {"domain": names, "range": [SERIES[n % len(SERIES)] for n in range(len(names))]},
                "legend": {
                    "columns": legend_columns(width_px - 40, names),
                    "symbolType": "stroke",
                    "symbolStrokeWidth": 3,
                },
            },
        },
    }
    ends = {
        "data": {"values": [{"gib": size} for size in _totals(samples)]},
        "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
        "encoding": {"y": {"field": "gib", "type": "quantitative"}},
    }
    rules = {
        "data": {"values": phases},
        "mark": {"type": "rule", "color": QUIET, "strokeDash": [3, 3]},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
    }
    words = {
        "data": {"values": _apart(phases, end, width_px)},
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "color": QUIET},
        "encoding": {
            "x": {"field": "at", "type": "quantitative"},
            "y": {"value": -4},
            "text": {"field": "phase"},
        },
    }
    padding = {"top": 20, "bottom": 2, "left": 2, "right": 6}
    return chart(width_px, 320, data={"values": rows}, layer=[rules, words, ends, lines], padding=padding)


def _totals(samples: Samples) -> list[float]:
    return sorted({round(device.total_bytes / GIB, 2) for device in samples.devices if device.total_bytes})


def _rows(samples: Samples) -> Iterator[dict[str, Any]]:
    lines = max(1, 2 * len(samples.devices))
    kept = _kept(len(samples.seconds), max(FEWEST_POINTS, 2 * MOST_POINTS // lines))
    if not samples.devices:
        for at in kept:
            yield _row(samples.seconds[at], samples.rss_bytes[at], RESIDENT)
    for number, device in enumerate(samples.devices):
        suffix = f", device {number}" if len(samples.devices) > 1 else ""
        for name, values in ((OWN, device.own_bytes), (OTHER, device.others_bytes)):
            if any(values):
                for at in kept:
                    yield _row(samples.seconds[at], values[at], name + suffix)


def _row(seconds: float, size_bytes: int, line: str) -> dict[str, Any]:
    return {"seconds": round(seconds, 2), "gib": round(size_bytes / GIB, 4), "line": line}


def _kept(count: int, most: int) -> list[int]:
    """Which samples are drawn: all, or evenly chosen ones with both ends."""
    if count <= most:
        return list(range(count))
    return sorted({round(n * (count - 1) / (most - 1)) for n in range(most)})


def _apart(phases: list[dict[str, Any]], end: float, width_px: int) -> list[dict[str, Any]]:
    """The phases' names where they do not run into each other; the last ones end with the drawing."""
    room_px = max(1, width_px - 60)
    shown: list[dict[str, Any]] = []
    free_px = 0.0
    for phase in phases:
        width = CHARACTER_PX * len(phase["phase"])
        at = min(phase["at"] / end * room_px if end else 0.0, room_px - width)
        if at >= free_px:
            shown.append({**phase, "at": at / room_px * end})
            free_px = at + width + CHARACTER_PX
    return shown
