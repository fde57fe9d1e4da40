"""Each figure that a measured start printed, beside the interval that was foretold, and how many of them it holds."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bench.evidence.starts import Start
from fitserve.memory.resolve import is_multimodal
from fitserve.units import GIB

ROUNDING_GIB = 0.006
"""A log rounds to 0.01 GiB."""

TERMS = (
    ("weights", ("weights_bytes", "allocator_bytes"), "weights_gib", GIB),
    ("activation", ("activation_bytes",), "activation_gib", GIB),
    ("non-torch", ("non_torch_bytes",), "non_torch_gib", GIB),
    ("graphs, captured", ("captured_bytes",), "cudagraph_actual_gib", GIB),
    ("KV cache", ("kv_cache_bytes",), "kv_available_gib", GIB),
    ("KV cache tokens", ("tokens",), "kv_tokens", 1),
)
"""Its name, the plan's terms that make it up, where the row keeps it, and the plan's units in the row's."""

CONSUMED = ("weights_bytes", "allocator_bytes", "non_torch_bytes")
"""What is printed in place of the weights where a row says so."""

WITH_ESTIMATE = ("activation_bytes", "cuda_graph_bytes")
"""What is printed as the activations' peak where a row says so: from 0.21 on."""


class Term(NamedTuple):
    """One figure: foretold, and printed; GiB or tokens.

    Attributes:
        start: whose it is.
        name: which it is.
        low: the interval's lower end.
        expected: what was reckoned with.
        high: the interval's upper end.
        printed: what the start printed.
        slack: what printing rounds off.
    """

    start: Start
    name: str
    low: float
    expected: float
    high: float
    printed: float
    slack: float

    @property
    def error(self) -> float:
        """What was foretold too much."""
        return self.expected - self.printed

    def holds(self, shift: float = 0.0) -> bool:
        """True where the interval, moved by so much, holds what was printed."""
        return self.low + shift - self.slack <= self.printed <= self.high + shift + self.slack


def terms_of(starts: Iterable[Start]) -> list[Term]:
    """The figures of all starts that came up."""
    found = []
    for start in starts:
        if start.row["outcome"] not in ("started", "serving_oom"):
            continue
        for name, fields, column, unit in TERMS:
            size, printed = start.size(*printed_terms(start, name, fields)), start.row.get(column)
            if size is None or not printed or printed < 0:
                continue
            slack = ROUNDING_GIB if unit == GIB else ROUNDING_GIB * GIB * size.expected / _cache_bytes(start)
            found.append(
                Term(
                    start,
                    name,
                    size.low / unit,
                    size.expected / unit,
                    size.high / unit,
                    float(printed),
                    slack,
                )
            )
    return found


def printed_terms(start: Start, name: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The plan's terms that the row's figure is made of."""
    notes = " ".join(start.row.get("notes") or ())
    if name == "weights" and "w is consumed memory" in notes:
        return CONSUMED
    if name == "activation" and 'printed "peak activation" includes' in notes:
        return WITH_ESTIMATE
    return fields


def _cache_bytes(start: Start) -> int:
    cache = start.size("kv_cache_bytes")
    return max(1, cache.expected) if cache else 1


def share_held(terms: Sequence[Term]) -> float:
    """The share of figures inside their intervals."""
    return sum(term.holds() for term in terms) / len(terms)


def share_held_out(terms: Sequence[Term], group: Callable[[Start], Any]) -> float:
    """The share inside where each group's level is learnt from the others: moved by the median error that they have.

    The levels of activation, non-torch and graphs are constants that were found on such starts; this takes from a group what it
    has told of them. NaN where there is one group.
    """
    names = {group(term.start) for term in terms}
    if len(names) < 2:
        return float("nan")
    inside = 0
    for name in names:
        others = [-term.error for term in terms if group(term.start) != name]
        shift = statistics.median(others)
        inside += sum(term.holds(shift) for term in terms if group(term.start) == name)
    return inside / len(terms)


def model_of(start: Start) -> Any:
    """The model of a start."""
    return start.row["model_config"] or start.row["model_id"]


def is_of_campaign(start: Start) -> bool:
    """True for the starts that levels were found on: one campaign's logs and summaries, and its repetitions."""
    return start.row["source_kind"] in ("vllm_debug_log", "run_json_extracted_from_log")


def kinds_of(start: Start) -> list[str]:
    """The kinds of start that it is one of."""
    options, device, config = start.plan.settings, start.asked_of, start.checkpoint.config
    capability = device.compute_capability
    ranks = [options[f"{name}_parallel_size"].value for name in ("tensor", "pipeline")]
    kinds = {
        "Hopper": capability is not None and capability[0] == 9,
        "Blackwell": capability is not None and capability[0] >= 10,
        "older NVIDIA": capability is not None and capability[0] < 9,
        "AMD": "AMD" in (start.row["gpu_name"] or "") or "RX 7" in (start.row["gpu_name"] or ""),
        "unified memory": device.unified,
        "several devices": any(rank > 1 for rank in ranks),
        "V0": start.row.get("engine") == "v0",
        "a vision encoder": is_multimodal(config),
        "experts": config.integer("num_experts_per_tok", "top_k_experts", default=0) > 0,
    }
    return [name for name, is_one in kinds.items() if is_one]
