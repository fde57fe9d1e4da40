"""The numbers of a diagnosis as rows: a label, the value with its unit, what it amounts to, and where it was printed."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fitserve.diagnose.finding import Diagnosis, Evidence
from fitserve.facts.ledger import tightest_rank
from fitserve.facts.serve_options import arity
from fitserve.units import GIB, KIB, MIB

_PAIRS = {"needed_gib": "max_model_len", "available_gib": "estimated_max_model_len"}
"""A size and the number of tokens that it stands for."""

_COMPARED_FIRST = (
    "bytes_per_token",
    "needed_gib",
    "tried_to_allocate_gib",
    "requested_gib",
    "prompt_tokens",
    "max_tokens",
    "requested_tokens",
)
_COMPARED_WITH = ("available_gib", "gpu_free_gib", "gpu_total_gib")
_STAGES_OF_MEMORY = ("weights", "profiling", "kv_cache", "graph_capture", "warmup", "serving", "-")
_TERMS = {
    "requested_bytes": ("budget", "requested_gib"),
    "weights_bytes": ("- weights", "weights_gib"),
    "activation_bytes": ("- activations", "activation_gib"),
    "non_torch_bytes": ("- non-torch", "non_torch_gib"),
    "cuda_graph_bytes": ("- graphs", "graph_estimate_gib"),
    "kv_cache_bytes": ("KV cache", "available_gib"),
}
"""Terms of the budget, with the number of a diagnosis that says the same."""

_FEWEST_TERMS = 3
_UNITS = {"_gib": GIB, "_mib": MIB, "_bytes": 1}
_BYTES_PER = "bytes_per_"
_NAMES = {"kv_tokens": "KV cache", "gpu_blocks": "blocks", "auto_fit_max_model_len": "max_model_len, fitted"}
_IN_TOKENS = (
    "max_model_len",
    "estimated_max_model_len",
    "derived_max_model_len",
    "auto_fit_max_model_len",
    "max_tokens",
)


class Row(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        label: what it is.
        number: the value, with thousands separated.
        unit: ``GiB``, ``tokens``, or empty.
        aside: what it amounts to; empty if nothing.
        source: where it was printed; empty if that is not known.
    """

    label: str
    number: str
    unit: str = ""
    aside: str = ""
    source: str = ""


class Figures(msgspec.Struct, frozen=True):
    """The arithmetic of a diagnosis, and the settings that it was made with."""

    rows: list[Row]
    settings: list[str]


def figures(diagnosis: Diagnosis) -> Figures:
    """What is compared first, then the budget down to what is available, then the rest; settings apart.

    A setting that stands literally in the evidence is part of the arithmetic.
    """
    numbers = diagnosis.numbers
    beside = {partner for key, partner in _PAIRS.items() if key in numbers}
    sources = {key: _printed_in(value, diagnosis.evidence) for key, value in numbers.items()}
    is_setting = {key: arity(key) is not None and not sources[key] for key in numbers}
    shown = [key for key in numbers if key not in beside and not is_setting[key]]
    budget = _budget_rows(diagnosis)
    told = {_TERMS[key][1] for key in budget} - {"available_gib"}
    first = [key for key in _COMPARED_FIRST if key in shown and key not in told]
    last = [key for key in _COMPARED_WITH if key in shown and key not in told]
    rest = [key for key in shown if key not in {*first, *last, *told}]
    if "available_gib" in shown:
        budget.pop("kv_cache_bytes", None)

    def row(key: str) -> Row | None:
        number, unit = _measured(key, numbers[key])
        partner = _PAIRS.get(key, "")
        aside = " ".join(_measured(partner, numbers[partner])).strip() if partner in numbers else ""
        return Row(_label(key), number, unit, aside, sources[key]) if number else None

    keyed = [row(key) for key in first], list(budget.values()), [row(key) for key in (*last, *rest)]
    settings = [
        f"{key} {_set_to(key, numbers[key])}" for key in numbers if is_setting[key] and key not in beside
    ]
    return Figures([one for part in keyed for one in part if one is not None], settings)


def shown(key: str, value: Any) -> str:
    """A number by its name, as text with its unit: ``KV cache 1.50 GiB``; empty for what is no single value."""
    number, unit = _measured(key, value)
    return f"{_label(key)} {number} {unit}".rstrip() if number else ""


def _budget_rows(diagnosis: Diagnosis) -> dict[str, Row]:
    """The memory of the tightest rank by term: what it may use, less what is used; empty where the log shows too little."""
    if diagnosis.stage not in _STAGES_OF_MEMORY:
        return {}
    tightest = tightest_rank(diagnosis.budget)
    is_sum = _whole(tightest.get("requested_bytes")) is not None
    if not is_sum and diagnosis.stage != "-":
        return {}
    rows = {}
    for key, (label, _) in _TERMS.items():
        size = _whole(tightest.get(key))
        if size is not None:
            rows[key] = Row(
                label if is_sum else label.removeprefix("- "), *_size(size), "", _source(tightest[key])
            )
    return rows if len(rows) >= _FEWEST_TERMS else {}


def _measured(key: str, value: Any) -> tuple[str, str]:
    """The number and its unit; two empty texts for what is no single value."""
    if isinstance(value, Mapping):
        value = value.get("expected")
    if isinstance(value, bool | str):
        return (value if isinstance(value, str) else str(value).lower()), ""
    if not isinstance(value, int | float):
        return "", ""
    if key.startswith(_BYTES_PER):
        return _size(value)
    if key.endswith("_gib") and round(value, 2) == value:
        # As vLLM printed it, rounded: a smaller unit would claim digits that nobody has seen.
        return f"{value:,.2f}", "GiB"
    for suffix, unit in _UNITS.items():
        if key.endswith(suffix):
            return _size(value * unit)
    return f"{value:,}", "tokens" if key.endswith("_tokens") or key in _IN_TOKENS else ""


def _set_to(key: str, value: Any) -> str:
    """A setting's value, with its unit where the name does not say it: ``100 MiB``."""
    number, unit = _measured(key, value)
    return number if unit in ("", "tokens") else f"{number} {unit}"


def _size(size_bytes: float) -> tuple[str, str]:
    if abs(size_bytes) >= 0.1 * GIB or size_bytes == 0:
        return f"{size_bytes / GIB:,.2f}", "GiB"
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:,.1f}".removesuffix(".0"), name
    return f"{size_bytes:,.0f}", "bytes"


def _label(key: str) -> str:
    """``kv_cache_bytes`` as ``KV cache``; vLLM's own names stay as they are."""
    if arity(key) is not None or key in _NAMES:
        return _NAMES.get(key, key)
    if key.startswith(_BYTES_PER):
        return key.removeprefix("bytes_").replace("_", " ")
    if key.startswith("vllm_"):
        return key.removesuffix("_gib").upper()
    for suffix in (*_UNITS, "_tokens"):
        if key.endswith(suffix) and key not in _IN_TOKENS:
            words = key.removesuffix(suffix).replace("_", " ").removeprefix("gpu ")
            return re.sub(r"\bkv\b", "KV", words)
    return key.replace("_", " ") if key not in _IN_TOKENS else key


def _whole(value: Any) -> int | None:
    """The expected bytes of a size as in JSON; None where it is unknown."""
    if isinstance(value, Mapping):
        value = value.get("expected")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _source(value: Any) -> str:
    source = value.get("source") if isinstance(value, Mapping) else None
    return source if isinstance(source, str) else ""


def _printed_in(value: Any, evidence: Iterable[Evidence]) -> str:
    """The evidence line in which a number stands literally, as ``line 214``."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, float):
        spellings = {str(value), f"{value:.2f}", f"{value:.4f}"}
    elif isinstance(value, int):
        spellings = {str(value), f"{value:,}"}
    else:
        return ""
    pattern = re.compile(
        r"(?<![\w.,-])(?:" + "|".join(map(re.escape, sorted(spellings))) + r")(?![\w])(?!\.\d)"
    )
    return next((f"line {item.line}" for item in evidence if pattern.search(item.text)), "")
