"""Second plans from one log: a start is planned from what another start of the same model, device and release has printed.

What an INFO log prints is taken from the first one: the weights and the memory left for the KV cache. The figures that are
compared are those of the second one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bench.evidence.starts import Start, given_of
from fitserve.plan.make import make_plan
from fitserve.plan.observed import Observed
from fitserve.plan.request import Request
from fitserve.units import GIB, Quantity

_ALIKE = ("model_id", "vllm_version", "gpu_name", "gpu_total_gib")
_ROUNDING = 0.005 * GIB


class Pair(NamedTuple):
    """Two starts, and what the log of the first foretells of the second.

    Attributes:
        changed: the settings that differ, by vLLM's names.
        cache: memory for the KV cache as foretold.
        printed_bytes: as the second start printed it.
    """

    first: Start
    second: Start
    changed: tuple[str, ...]
    cache: Quantity
    printed_bytes: float

    @property
    def error(self) -> float:
        """How far the memory for the KV cache is off, as a share of it."""
        return abs(self.cache.expected / self.printed_bytes - 1)

    @property
    def is_held(self) -> bool:
        """True where the interval holds what was printed, to the log's rounding."""
        return self.cache.low - _ROUNDING <= self.printed_bytes <= self.cache.high + _ROUNDING


def pairs_of(starts: Sequence[Start]) -> list[Pair]:
    """Every ordered pair of starts of one model on one device and release, with different settings."""
    usable = [start for start in starts if _is_usable(start)]
    found = (_pair(first, second) for first, second in _neighbours(usable))
    return [pair for pair in found if pair is not None]


def _is_usable(start: Start) -> bool:
    row = start.row
    printed = row["kv_available_gib"] and row["weights_gib"]
    return bool(printed and row["outcome"] == "started" and start.is_full and len(start.plans) == 1)


def _neighbours(starts: Sequence[Start]) -> Iterator[tuple[Start, Start]]:
    for first in starts:
        for second in starts:
            alike = all(first.row[name] == second.row[name] for name in _ALIKE)
            if first is not second and alike and given_of(first.row) != given_of(second.row):
                yield first, second


def _pair(first: Start, second: Start) -> Pair | None:
    then, now = given_of(first.row), given_of(second.row)
    plan = make_plan(
        Request(
            checkpoint=second.checkpoint,
            model=second.row["model_id"],
            device=second.asked_of,
            given=now,
            version=second.plan.vllm_version,
            observed=(observed_of(first.row, then),),
        )
    )
    cache = plan.budget[0].kv_cache_bytes
    if not isinstance(cache, Quantity):
        return None
    changed = tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
    return Pair(first, second, changed, cache, second.row["kv_available_gib"] * GIB)


def observed_of(row: dict[str, Any], given: dict[str, Any]) -> Observed:
    """What an INFO log of the start tells."""
    weights = Quantity.printed_gib(f"{row['weights_gib']}", "weights")
    return Observed(
        source="its log",
        given=given,
        terms={"weights_bytes": weights},
        kv_cache_bytes=Quantity.printed_gib(f"{row['kv_available_gib']:.2f}", "KV cache"),
    )


def by_change(pairs: Iterable[Pair]) -> dict[tuple[str, ...], list[Pair]]:
    """The pairs by what differs, the most frequent first."""
    found: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.changed, []).append(pair)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
