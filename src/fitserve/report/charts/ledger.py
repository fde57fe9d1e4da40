"""The memory of each rank as a picture: what vLLM takes of the device, and what it leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fitserve.report.charts.theme import CHARACTER_PX, INK, SERIES, SURFACE, chart, legend_columns
from fitserve.report.record import Record
from fitserve.trial.outcome import Trial
from fitserve.units import GIB, MIB

KV_CACHE = "KV cache"
PARTS = {
    "weights_bytes": "weights",
    "activation_bytes": "activations",
    "non_torch_bytes": "non-torch",
    "cuda_graph_bytes": "graphs",
    "kv_cache_bytes": KV_CACHE,
}
"""The terms of a budget in the order in which vLLM takes them off, and their names."""

UNREQUESTED = "not requested"
OTHERS = "held before the start"
UNTOLD = "activations and non-torch"
"""What the request holds beside what the log tells: by default vLLM prints neither of the two."""

NAMES = (*PARTS.values(), UNREQUESTED, OTHERS, UNTOLD)
_ROUNDING_BYTES = 32 << 20
"""Terms are printed to a hundredth of a GiB each."""

_ORDER = (*list(PARTS.values())[:-1], UNTOLD, KV_CACHE, UNREQUESTED, OTHERS)
MOST_BARS = 24


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of one trial.

    Attributes:
        trial: its number.
        rank: the rank as vLLM names it.
        parts: bytes by name, in the order of the bar; what is not known is not there.
        total_bytes: the device; None where vLLM printed none.
        requested_bytes: what vLLM may take; None likewise.
        missing_bytes: how much less than nothing is left for the KV cache.
    """

    trial: int
    rank: str
    parts: dict[str, int]
    total_bytes: int | None
    requested_bytes: int | None
    missing_bytes: int = 0


def ledger_bars(record: Record) -> list[Bar]:
    """A bar for every rank of every trial whose log has memory figures."""
    bars = [
        _bar(trial, at, rank)
        for trial in record.trials
        if trial.diagnosis is not None
        for at, rank in enumerate(trial.diagnosis.budget)
    ]
    return [bar for bar in bars if bar.parts]


def _bar(trial: Trial, at: int, rank: Mapping[str, Any]) -> Bar:
    sizes = {name: size for name in rank if (size := _expected(rank[name])) is not None}
    parts = {words: sizes[name] for name, words in PARTS.items() if sizes.get(name, 0) > 0}
    total = sizes.get("total_bytes", _seen_total(trial, at))
    requested = sizes.get("requested_bytes", _share_of(trial, total))
    free = sizes.get("free_bytes")
    if requested is not None and {"weights_bytes", "kv_cache_bytes"} <= sizes.keys():
        rest = requested - sum(max(0, sizes[name]) for name in PARTS if name in sizes)
        if rest > _ROUNDING_BYTES and not {"activation_bytes", "non_torch_bytes"} <= sizes.keys():
            parts[UNTOLD] = rest
    others = max(0, total - free) if total is not None and free is not None else 0
    if parts and total is not None and requested is not None and total - requested - others > 0:
        parts[UNREQUESTED] = total - requested - others
    if parts and others:
        parts[OTHERS] = others
    return Bar(
        trial=trial.n,
        rank=str(rank.get("rank", 0)),
        parts=parts,
        total_bytes=total,
        requested_bytes=requested,
        missing_bytes=max(0, -sizes.get("kv_cache_bytes", 0)),
    )


def _seen_total(trial: Trial, at: int) -> int | None:
    """The device's size as the driver told it while the trial ran; ranks of one node have the devices in order."""
    devices = trial.samples.devices if trial.samples is not None else []
    return devices[at].total_bytes if at < len(devices) else None


def _share_of(trial: Trial, total_bytes: int | None) -> int | None:
    """Total times ``gpu_memory_utilization``, where the log shows that setting."""
    share = trial.memory.printed.get("gpu_memory_utilization")
    if total_bytes is None or isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return round(total_bytes * share)


def _expected(value: Any) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("expected")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def bar_name(bar: Bar, bars: Sequence[Bar]) -> str:
    """What a bar is called beside the others."""
    has_ranks = any(other.rank != bar.rank for other in bars)
    return f"trial {bar.trial}, rank {bar.rank}" if has_ranks else f"trial {bar.trial}"


def unit_of(bars: Sequence[Bar]) -> tuple[str, int]:
    """The unit in which the bars' figures can be told apart, and its bytes."""
    largest = max(sum(bar.parts.values()) for bar in bars)
    return ("GiB", GIB) if largest >= GIB else ("MiB", MIB)


def ledger_spec(bars: Sequence[Bar], width_px: int) -> dict[str, Any]:
    """A stacked bar for each rank, with marks where the request and the device end."""
    shown = bars[-MOST_BARS:]
    unit, unit_bytes = unit_of(bars)
    names = [bar_name(bar, shown) for bar in shown]
    rows = [
        {"bar": name, "part": part, "size": round(size / unit_bytes, 4), "order": _ORDER.index(part)}
        for bar, name in zip(shown, names, strict=True)
        for part, size in bar.parts.items()
    ]
    ends = [
        {"bar": name, "size": round(size / unit_bytes, 4), "what": what}
        for bar, name in zip(shown, names, strict=True)
        for what, size in (("requested", bar.requested_bytes), ("device", bar.total_bytes))
        if size is not None
    ]
    used = [name for name in NAMES if any(row["part"] == name for row in rows)]
    colours = [SERIES[NAMES.index(name)] for name in used]
    y = {"field": "bar", "type": "nominal", "sort": names, "title": None, "axis": _axis(names)}
    stack = {
        "mark": {"type": "bar", "stroke": SURFACE, "strokeWidth": 1.5, "height": {"band": 0.62}},
        "encoding": {
            "y": y,
            "x": {"field": "size", "type": "quantitative", "title": unit, "axis": {"tickCount": 6}},
            "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "part",
                "type": "nominal",
                "title": None,
                "scale": {"domain": used, "range": colours},
                "legend": {"columns": legend_columns(width_px - _room_px(names), used)},
            },
        },
    }
    marks = {
        "data": {"values": ends},
        "mark": {"type": "tick", "color": INK, "thickness": 2, "size": 34},
        "encoding": {"y": y, "x": {"field": "size", "type": "quantitative"}},
    }
    return chart(
        width_px,
        110 + 46 * len(shown),
        data={"values": rows},
        layer=[stack, marks],
    )


def _axis(names: Sequence[str]) -> dict[str, Any]:
    """Names beside the bars, with room for a font that is wider than the one that was measured."""
    return {"domain": False, "ticks": False, "minExtent": _room_px(names)}


def _room_px(names: Sequence[str]) -> float:
    return CHARACTER_PX * max(map(len, names)) + 6
