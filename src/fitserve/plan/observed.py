"""What an earlier start has shown of its memory, carried over to other settings.

A start's log names some terms of its budget, and what was left for the KV cache. The rest follows: what the named terms and
the cache do not explain belongs to the others, to each by how uncertain its estimate is. For other settings a term changes
as the model says that it changes; only that change is as uncertain as the model.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fitserve.memory.budget import RankBudget
from fitserve.memory.overhead.non_torch import own_non_torch
from fitserve.memory.resolve import Resolved
from fitserve.plan.checks import checks_free_memory
from fitserve.units import MIB, Quantity, Size

_SCALED = ("activation_bytes", "cuda_graph_bytes", "captured_bytes", "step_bytes")
"""Terms that change by a factor; the others change by a sum."""

_UNNAMED = ("activation_bytes", "non_torch_bytes")
"""Terms that vLLM's usual log does not name: what is left unexplained is theirs."""

_FAILED_TERM = {
    "weights-do-not-fit": "weights_bytes",
    "profile-run-oom": "activation_bytes",
    "multimodal-profile-oom": "activation_bytes",
    "kv-allocation-oom": "used_before_bytes",
    "graph-capture-oom": "captured_bytes",
    "sampler-warmup-oom": "step_bytes",
    "serving-oom": "step_bytes",
}
"""The term that was too large where a start ran out of memory."""

_BESIDE: dict[str, tuple[str, ...]] = {
    "weights_bytes": (),
    "activation_bytes": ("weights_bytes", "allocator_bytes"),
    "used_before_bytes": ("weights_bytes", "allocator_bytes", "non_torch_bytes", "kv_cache_bytes"),
    "captured_bytes": ("weights_bytes", "allocator_bytes", "non_torch_bytes", "kv_cache_bytes"),
    "step_bytes": ("weights_bytes", "allocator_bytes", "non_torch_bytes", "kv_cache_bytes", "captured_bytes"),
}
"""What the device holds when a term runs out of memory, besides what was used before the start."""

_LACK_MOST = 1.5
_LACK_EXPECTED = 1.1
"""How much more than was left a term that ran out of memory is taken to be: chosen, not measured."""

_LEAST_LACK_BYTES = 128 * MIB


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What one start has shown.

    Attributes:
        source: where it is from, such as the log's name.
        given: its settings by vLLM's names.
        terms: the terms of its tightest rank's budget that were printed, by name.
        kv_cache_bytes: what was left for the KV cache; None where that was not printed.
        failed: the cause by which it ended; None where it served.
        missing_bytes: what the allocation that failed lacked; 0 where that was not printed.
    """

    source: str
    given: Mapping[str, Any]
    terms: Mapping[str, Quantity] = {}
    kv_cache_bytes: Quantity | None = None
    failed: str | None = None
    missing_bytes: int = 0


def carried_over(
    observed: Observed, then: RankBudget, now: RankBudget, resolved_then: Resolved
) -> dict[str, Quantity]:
    """The terms of a budget as the earlier start corrects them, by name.

    Args:
        observed: the earlier start.
        then: the model's budget for its settings.
        now: the model's budget for the settings in question.
        resolved_then: the settings of the earlier start.
    """
    shown = dict(observed.terms)
    if isinstance(then.cuda_graph_bytes, Quantity) and then.cuda_graph_bytes.high == 0:
        shown.pop("cuda_graph_bytes", None)  # an estimate that was printed, and not taken from the cache
    shown |= _was_free(observed, then, resolved_then)
    shown |= _unnamed(observed, shown, then, resolved_then)
    shown |= _lack(observed, shown, then, resolved_then)
    found = {}
    for name, size in shown.items():
        before, after = _modelled(name, then), _modelled(name, now)
        if isinstance(before, Quantity) and isinstance(after, Quantity):
            found[name] = _carried(name, size, before, after)
        elif name == "weights_bytes":
            found[name] = size
    return found


def _was_free(observed: Observed, then: RankBudget, resolved: Resolved) -> dict[str, Quantity]:
    """What the device held before at most: a start that has loaded its weights had found its share free."""
    used, most = then.used_before_bytes, then.total_bytes - then.requested_bytes
    if (
        "weights_bytes" not in observed.terms
        or "used_before_bytes" in observed.terms
        or not isinstance(used, Quantity)
        or used.high <= most
        or not checks_free_memory(resolved)
    ):
        return {}
    found = Quantity(
        low=min(used.low, most),
        expected=min(used.expected, most),
        high=most,
        basis="measured",
        source=f"{observed.source}: {resolved.options.gpu_memory_utilization} of the device was free",
    )
    return {"used_before_bytes": found}


def _modelled(name: str, rank: RankBudget) -> Size:
    """A term as vLLM prints it: its weights are counted with the tails of the allocator's blocks."""
    size: Size = getattr(rank, name)
    tails = rank.allocator_bytes
    if name != "weights_bytes" or not isinstance(size, Quantity) or not isinstance(tails, Quantity):
        return size
    return Quantity(
        low=size.low + tails.low,
        expected=size.expected + tails.expected,
        high=size.high + tails.high,
        basis=size.basis,
        source=size.source,
    )


def _unnamed(
    observed: Observed, shown: Mapping[str, Quantity], then: RankBudget, resolved: Resolved
) -> dict[str, Quantity]:
    """Activation and non-torch memory by what is left over between the share, the cache and the other terms."""
    cache = observed.kv_cache_bytes
    open_terms = [name for name in _UNNAMED if name not in shown]
    is_pinned = resolved.options.kv_cache_memory_bytes is not None
    if cache is None or is_pinned or not open_terms:
        return {}
    named = ("weights_bytes", "cuda_graph_bytes", *(name for name in _UNNAMED if name in shown))
    parts = [shown.get(name, getattr(then, name)) for name in named]
    if "weights_bytes" not in shown:
        parts.append(then.allocator_bytes)
    guessed = {name: getattr(then, name) for name in open_terms}
    if not all(isinstance(part, Quantity) for part in (*parts, *guessed.values())):
        return {}
    left = then.requested_bytes - cache.expected - sum(part.expected for part in parts)
    doubt = (cache.high - cache.low) // 2
    source = f"{observed.source}: what {cache.source} and the other terms leave"
    return {
        name: Quantity(
            low=max(0, value - doubt), expected=value, high=value + doubt, basis="measured", source=source
        )
        for name, value in _shared_out(left, guessed).items()
    }


def _shared_out(left_bytes: int, guessed: Mapping[str, Quantity]) -> dict[str, int]:
    """A sum shared out to its terms: what is off goes to each by the square of its doubt, and none is below 0."""
    surplus = left_bytes - sum(size.expected for size in guessed.values())
    weights = {name: max(1, size.high - size.low) ** 2 for name, size in guessed.items()}
    found: dict[str, int] = {}
    for name in sorted(guessed, key=lambda name: guessed[name].expected):
        due = round(guessed[name].expected + surplus * weights[name] / sum(weights.values()))
        found[name] = min(max(0, due), max(0, left_bytes))
    largest = max(guessed, key=lambda name: guessed[name].expected)
    found[largest] = max(0, left_bytes - sum(value for name, value in found.items() if name != largest))
    return found


def _lack(
    observed: Observed, shown: Mapping[str, Quantity], then: RankBudget, resolved: Resolved
) -> dict[str, Quantity]:
    """The term by which a start ran out of memory: at least what the device had left for it."""
    name = _FAILED_TERM.get(observed.failed or "")
    if name is None or (name in observed.terms and name != "used_before_bytes"):
        return {}
    sizes: list[Size] = [shown.get(part, getattr(then, part)) for part in _BESIDE[name]]
    if "non_torch_bytes" in _BESIDE[name]:
        at = _BESIDE[name].index("non_torch_bytes")
        sizes[at] = own_non_torch(sizes[at], then.used_before_bytes, resolved)
    if "weights_bytes" in shown:
        sizes = [size for size in sizes if size is not then.allocator_bytes]
    if "kv_cache_bytes" in _BESIDE[name] and observed.kv_cache_bytes is not None:
        sizes = [observed.kv_cache_bytes if size is then.kv_cache_bytes else size for size in sizes]
    if name != "used_before_bytes":
        sizes.append(shown.get("used_before_bytes", then.used_before_bytes))
    if not all(isinstance(size, Quantity) for size in sizes):
        return {}
    least = then.total_bytes - sum(size.expected for size in sizes if isinstance(size, Quantity))
    guess = shown.get("activation_bytes", then.step_bytes) if name == "step_bytes" else getattr(then, name)
    if least <= 0 or not isinstance(guess, Quantity) or guess.expected > least + observed.missing_bytes:
        return {}
    least += observed.missing_bytes
    expected = max(round(least * _LACK_EXPECTED), least + max(_LEAST_LACK_BYTES, 2 * observed.missing_bytes))
    return {
        name: Quantity(
            low=least,
            expected=expected,
            high=max(guess.high, round(least * _LACK_MOST), expected),
            basis="estimated",
            source=f"{observed.source}: more than the {least:,} bytes that were left for it",
        )
    }


def _carried(name: str, size: Quantity, before: Quantity, after: Quantity) -> Quantity:
    """A term of other settings, as the model changes it.

    In doubt are the change, as the model doubts it, and whether what the model has not explained changes too.
    """
    if before.expected == after.expected:
        return size
    if after.expected == 0:
        return after
    if name in _SCALED:
        if before.expected == 0:
            return after
        factor = after.expected / before.expected
        low, value, high = (round(part * factor) for part in (size.low, size.expected, size.high))
    else:
        low, value, high = (
            max(0, part + after.expected - before.expected) for part in (size.low, size.expected, size.high)
        )
    share = min(1.0, abs(after.expected - before.expected) / max(1, after.expected))
    unexplained = abs(size.expected - before.expected)
    return Quantity(
        low=max(0, round(low - share * max(unexplained, after.expected - after.low))),
        expected=value,
        high=round(high + share * max(unexplained, after.high - after.expected)),
        basis="estimated",
        source=f"{size.source}; changed as {after.source} changes",
    )
