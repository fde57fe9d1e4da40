"""The memory of one boot as vLLM printed it, rank by rank."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fitserve.facts.messages.event import Event
from fitserve.units import GIB, Quantity, Unknown

_UNSEEN = Unknown("not in the log")
_TERMS = {
    "gpu_total_gib": "total_bytes",
    "requested_gib": "requested_bytes",
    "gpu_free_gib": "free_bytes",
    "weights_gib": "weights_bytes",
    "activation_gib": "activation_bytes",
    "non_torch_gib": "non_torch_bytes",
    "graph_estimate_gib": "cuda_graph_bytes",
    "graphs_gib": "captured_bytes",
    "available_gib": "kv_cache_bytes",
}


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank holds and may hold, in bytes.

    Attributes:
        rank: the rank as printed, or ``0``.
        total_bytes: the device.
        free_bytes: what was free at the start.
        requested_bytes: total times utilization.
        weights_bytes: the model.
        activation_bytes: the peak of the profile run above what stays.
        non_torch_bytes: NCCL, contexts, other libraries.
        cuda_graph_bytes: the estimate of the graphs, before they are captured.
        captured_bytes: what the captured graphs took.
        kv_cache_bytes: what is left for the cache; below zero where nothing is.
    """

    rank: str
    total_bytes: Quantity | Unknown = _UNSEEN
    free_bytes: Quantity | Unknown = _UNSEEN
    requested_bytes: Quantity | Unknown = _UNSEEN
    weights_bytes: Quantity | Unknown = _UNSEEN
    activation_bytes: Quantity | Unknown = _UNSEEN
    non_torch_bytes: Quantity | Unknown = _UNSEEN
    cuda_graph_bytes: Quantity | Unknown = _UNSEEN
    captured_bytes: Quantity | Unknown = _UNSEEN
    kv_cache_bytes: Quantity | Unknown = _UNSEEN


def printed_gib(text: str, line: int) -> Quantity:
    """The bytes behind a GiB figure that vLLM printed, which may be negative.

    vLLM rounds to two decimals and drops a trailing zero from 0.14.0 on (``5.0`` is 4.995 to 5.005).
    Source: vLLM 0.14.0 and later, ``utils/mem_utils.py``, ``format_gib``; ``%.2f`` before.
    """
    decimals = max(2, len(text.partition(".")[2]))
    half = GIB / (2 * 10**decimals)
    middle = float(text) * GIB
    return Quantity(
        low=round(middle - half),
        expected=round(middle),
        high=round(middle + half),
        basis="measured",
        source=f"line {line}",
    )


def quantity(event: Event, name: str) -> Quantity | None:
    """A GiB figure of a message as bytes, None if the message has none of that name."""
    text = event.numbers.get("printed", {}).get(name)
    if text is None:
        return None
    number = text.split()[0].rstrip("GiBMK")
    if not text.endswith(("MiB", "KiB", "bytes")):
        return printed_gib(number, event.line.number)
    value = round(event.numbers[name] * GIB)
    return Quantity(
        low=value, expected=value, high=value, basis="measured", source=f"line {event.line.number}"
    )


def rank_of(event: Event) -> str | None:
    """The worker that speaks, None for the engine, which speaks for all of its workers (``EngineCore_DP0`` too)."""
    process = event.line.process or ""
    return None if process.startswith(("EngineCore", "APIServer", "ApiServer")) else event.line.rank


def read_ledgers(events: Iterable[Event]) -> list[Ledger]:
    """One ledger for every rank that printed a figure, the last figure of a kind winning.

    What the engine prints for all ranks fills what a rank has not printed itself. What is free when memory runs out is not
    what was free at the start.
    """
    ranks: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.role not in ("fact", "cause") or event.stage == "request":
            continue
        found = {term: size for name, term in _TERMS.items() if (size := quantity(event, name)) is not None}
        if event.cause == "out-of-memory":
            found.pop("free_bytes", None)
        if found:
            ranks.setdefault(rank_of(event) or "", {}).update(found)
    common = ranks.pop("", {})
    if not ranks:
        return [Ledger(rank="0", **common)] if common else []
    return [Ledger(rank=rank, **{**common, **terms}) for rank, terms in ranks.items()]


def tightest_rank(budget: Iterable[Any]) -> Mapping[str, Any]:
    """The rank with the least cache, of those that print theirs: newer releases let the first one alone do it.

    Args:
        budget: of a diagnosis: a mapping for each rank; what is none is passed over.
    """
    ranks = [rank for rank in budget if isinstance(rank, Mapping)]
    printed = [rank for rank in ranks if _cache_bytes(rank) is not None]
    return min(printed or ranks, key=lambda rank: _cache_bytes(rank) or 0, default={})


def _cache_bytes(rank: Mapping[str, Any]) -> int | None:
    size = rank.get("kv_cache_bytes")
    expected = size.get("expected") if isinstance(size, Mapping) else None
    return expected if isinstance(expected, int) else None
