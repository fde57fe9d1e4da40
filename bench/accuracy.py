"""How well plans foretell measured starts: KV cache, memory besides it, verdicts; the table of ``docs/accuracy.md``.

Reads ``truth.jsonl`` and ``models/`` from the folder given, or from ``../shared`` beside the checkout. A start counts where
its release, its device's memory and its model's configuration are known; what it leaves open is vLLM's default.
``--write`` writes the table. Exits with 1 where a target is missed.
"""

import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fitserve.errors import FitserveError
from fitserve.facts.checkpoint import read_checkpoint
from fitserve.facts.devices import find_device
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import KvPlan, Plan
from fitserve.units import GIB, Quantity, Size

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
ROUNDING_GIB = 0.006
UNUSED = ("other", "usage")
DTYPES = ("auto", "half", "float16", "bfloat16", "float32", "float")
FORETOLD = (
    "free_memory_check",
    "config_error",
    "kv_too_small",
    "no_cache_blocks",
    "mamba_blocks_too_few",
    "weights_oom",
)
TERMS = (
    ("weights", "weights_bytes", "weights_gib"),
    ("activation", "activation_bytes", "activation_gib"),
    ("non-torch", "non_torch_bytes", "non_torch_gib"),
    ("graphs, captured", "captured_bytes", "cudagraph_actual_gib"),
    ("KV cache", "kv_cache_bytes", "kv_available_gib"),
)


class Start(NamedTuple):
    """A measured start and its plan."""

    row: dict[str, Any]
    plan: Plan
    is_full: bool


class Term(NamedTuple):
    """One figure of a start: foretold, and printed in GiB."""

    model: str
    name: str
    size: Quantity
    printed: float

    @property
    def is_inside(self) -> bool:
        """True where what was printed is in the interval."""
        return self.size.low / GIB - ROUNDING_GIB <= self.printed <= self.size.high / GIB + ROUNDING_GIB

    @property
    def error(self) -> float:
        """GiB too much."""
        return self.size.expected / GIB - self.printed

    @property
    def of_half_width(self) -> float:
        """The error as a share of the interval's half on its side."""
        end = self.size.low if self.error > 0 else self.size.high
        half = abs(self.size.expected - end) / GIB + ROUNDING_GIB
        return abs(self.error) / half


def read_starts(folder: Path) -> tuple[list[Start], Counter[str]]:
    """Every start that can be planned, and why the others cannot."""
    found, left_out = [], Counter[str]()
    for line in (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        request = make_request(row, folder)
        if isinstance(request, str):
            left_out[request] += 1
            continue
        try:
            plan = make_plan(request)
        except FitserveError as error:
            left_out[error.what] += 1
            continue
        found.append(Start(row, plan, row["completeness"] == "full"))
    return found, left_out


def make_request(row: dict[str, Any], folder: Path) -> Request | str:
    """The question that the start answered, or why it cannot be asked."""
    version = re.fullmatch(r"(\d+\.\d+(?:\.\d+)?)(?:rc\d+)?(?:\.x|-era)?", row["vllm_version"] or "")
    model = folder / "models" / (row["model_config"] or "none").replace("/", "--")
    facts = find_device(row["gpu_name"] or "")
    total = row["gpu_total_gib"] or (facts.total_gib if facts else None)
    for missing, reason in (
        (version, "release not known"),
        (model.is_dir(), "model not known"),
        (total, "device not known"),
        (not (row["model_match"] or "").startswith("same shape"), "model only guessed from its shape"),
    ):
        if not missing:
            return reason
    assert version is not None
    assert total is not None
    is_amd = "AMD" in (row["gpu_name"] or "")
    numbers = row.get("failure_numbers") or {}
    free = numbers.get("free_gib") if row["outcome"] == "free_memory_check" else None
    return Request(
        checkpoint=read_checkpoint(str(model)),
        model=row["model_config"],
        device=Device(
            name=facts.name if facts else str(row["gpu_name"]),
            total_bytes=round(total * GIB),
            free_bytes=None if free is None else round(free * GIB),
            compute_capability=facts.compute_capability if facts else None if is_amd else (8, 0),
            multiprocessors=facts.multiprocessors if facts else None,
            unified=facts.unified if facts else False,
        ),
        given=settings_of(row),
        version=version[1],
        environment={"VLLM_USE_V1": "0"} if row.get("engine") == "v0" else {},
    )


def settings_of(row: dict[str, Any]) -> dict[str, Any]:
    """What was set, and what the log shows of the rest."""
    given = {name: value for name, value in row["flags"].items() if value is not None and name not in UNUSED}
    for name, value in (row["defaults"] or {}).items():
        if name in ("max_num_seqs", "max_num_batched_tokens") and value is not None:
            given.setdefault(name, value)
    if given.get("dtype") not in DTYPES:
        given.pop("dtype", None)
    return given


def terms_of(starts: Iterable[Start]) -> list[Term]:
    """Each printed figure beside what was foretold."""
    found = []
    for start in starts:
        if start.row["outcome"] != "started":
            continue
        for name, field, column in TERMS:
            rank = start.plan.budget[0]
            size, printed = getattr(rank, field), start.row.get(column)
            if field == "weights_bytes":
                size = added(size, rank.allocator_bytes)
            if isinstance(size, Quantity) and isinstance(printed, float) and printed > 0:
                found.append(Term(start.row["model_config"], name, size, printed))
    return found


def added(weights: Size, tails: Size) -> Size:
    """Weights as vLLM prints them: with the tails of their blocks."""
    if not isinstance(weights, Quantity) or not isinstance(tails, Quantity):
        return weights
    return Quantity(
        low=weights.low + tails.low,
        expected=weights.expected + tails.expected,
        high=weights.high + tails.high,
        basis=weights.basis,
        source=weights.source,
    )


def token_errors(starts: Iterable[Start]) -> list[float]:
    """How far the cache's tokens are off, as shares."""
    found = []
    for start in starts:
        printed, cache = start.row.get("kv_tokens"), start.plan.kv_cache
        if (
            start.row["outcome"] == "started"
            and printed
            and isinstance(cache, KvPlan)
            and isinstance(cache.tokens, Quantity)
        ):
            found.append(abs(cache.tokens.expected / printed - 1))
    return found


def other_errors(starts: Iterable[Start]) -> list[float]:
    """How far all memory besides the cache is off, as shares."""
    found = []
    for start in starts:
        printed = start.row.get("kv_available_gib")
        rank = start.plan.budget[0]
        if start.row["outcome"] == "started" and printed and isinstance(rank.kv_cache_bytes, Quantity):
            others = rank.requested_bytes / GIB - printed
            found.append(abs((rank.requested_bytes - rank.kv_cache_bytes.expected) / GIB / others - 1))
    return found


def held_out(terms: Sequence[Term]) -> float:
    """The share of figures inside when each model's width is scaled by what the other models need.

    The scale is the 90th percentile of the others' errors as shares of the interval's half, never below 1.
    """
    models = sorted({term.model for term in terms})
    if len(models) < 2:
        return float("nan")
    inside = 0
    for model in models:
        others = sorted(term.of_half_width for term in terms if term.model != model)
        scale = max(1.0, others[int(0.9 * (len(others) - 1))])
        inside += sum(term.of_half_width <= scale for term in terms if term.model == model)
    return inside / len(terms)


def table(starts: Sequence[Start], left_out: Counter[str]) -> tuple[str, bool]:
    """The page's text, and whether every target is met."""
    full = [start for start in starts if start.is_full]
    lines = ["# Accuracy", "", "Made by `python -m bench accuracy --write`; not written by hand.", ""]
    devices = len({start.plan.device for start in starts})
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    lines += [
        f"{len(starts)} measured starts of vLLM on {devices} kinds of device are foretold from configuration and flags alone:",
        f"{len(full)} with a whole debug log, {len(starts) - len(full)} with what their reports show. What a report leaves",
        "out counts as vLLM's default, which it may not have been. Most of the whole logs are of one campaign: 0.19 on H100.",
        f"{sum(left_out.values())} starts are left out: {reasons}.",
        "",
        "| what | starts | target | median | 90 % within | met |",
        "|---|---|---|---|---|---|",
    ]
    met = True
    for name, chosen in (("whole logs", full), ("all", starts)):
        for words, errors, median, ninetieth in (
            ("KV cache tokens", token_errors(chosen), 0.015, 0.05),
            ("memory besides the cache", other_errors(chosen), 0.08, None),
        ):
            middle, high = statistics.median(errors), sorted(errors)[int(0.9 * (len(errors) - 1))]
            fine = middle <= median and (ninetieth is None or high <= ninetieth)
            met = met and fine
            target = f"{median:.1%}" + (f", {ninetieth:.0%}" if ninetieth else "")
            lines.append(
                f"| {words}, {name} | {len(errors)} | {target} | {middle:.2%} | {high:.2%} | {'yes' if fine else 'no'} |"
            )
    lines += [
        "",
        "Each term in GiB; an interval is meant to hold 90 %. Held out: the widths are scaled by what the other models need.",
        "The formulas themselves were found on these logs, so the errors are those of a fit, not of strangers.",
        "",
    ]
    lines += [
        "| term | logs | figures | mean error | largest | inside | held out |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, chosen in (("whole", full), ("all", starts)):
        for term in TERMS:
            found = [one for one in terms_of(chosen) if one.name == term[0]]
            if found:
                lines.append(term_line(term[0], name, found))
    verdict_lines, safe = verdicts(starts)
    return "\n".join([*lines, *verdict_lines]) + "\n", met and safe


def term_line(name: str, logs: str, found: Sequence[Term]) -> str:
    """One row of the table of terms."""
    mean = statistics.fmean(abs(one.error) for one in found)
    largest = max(abs(one.error) for one in found)
    inside = sum(one.is_inside for one in found) / len(found)
    return f"| {name} | {logs} | {len(found)} | {mean:.3f} | {largest:.2f} | {inside:.0%} | {held_out(found):.0%} |"


def verdicts(starts: Sequence[Start]) -> tuple[list[str], bool]:
    """The table of verdicts, and whether no refused start was called one that starts."""
    counts = Counter((kind(start.row["outcome"]), start.plan.verdict) for start in starts)
    lines = ["", "| what happened | starts | cannot tell | does not start |", "|---|---|---|---|"]
    for happened in ("started", "refused", "other"):
        cells = [counts[happened, verdict] for verdict in ("starts", "cannot-tell", "does-not-start")]
        lines.append(f"| {happened} | {cells[0]} | {cells[1]} | {cells[2]} |")
    lines += [
        "",
        "Refused: for memory or settings. Other: no access to the model, or out of memory while serving.",
    ]
    refused = sum(counts["refused", verdict] for verdict in ("starts", "cannot-tell", "does-not-start"))
    return lines, counts["refused", "starts"] <= 0.05 * refused


def kind(outcome: str) -> str:
    """``started``, ``refused`` where a plan can know, else ``other``."""
    if outcome == "started":
        return "started"
    return "refused" if outcome in FORETOLD else "other"


def main() -> int:
    """Measure, print, and write the page where that is asked for."""
    words = [word for word in sys.argv[1:] if word != "--write"]
    folder = Path(words[0]) if words else ROOT.parent / "shared"
    if not (folder / "truth.jsonl").exists():
        print(f"error: there are no measured starts: {folder / 'truth.jsonl'}", file=sys.stderr)
        return 2
    starts, left_out = read_starts(folder)
    text, met = table(starts, left_out)
    print(text, end="")
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
