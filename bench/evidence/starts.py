"""Measured starts, and what plans foretell of them from configuration and flags alone.

A start counts where its device's memory and its model's configuration are known. Where its release is not, a plan is made for
every release that it may be: a figure counts where all of them foretell the same, a verdict where all of them agree.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from bench.evidence.models import checkpoint_of
from fitserve.errors import FitserveError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.devices import find_device
from fitserve.memory.history import at_least
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import KvPlan, Plan
from fitserve.units import GIB, Quantity

_RELEASE = re.compile(
    r"(\d+\.\d+(?:\.\d+)?)(?:rc\d+)?(?:\.dev\d+)?(?:\.x|-era|-style log)?(?: \(NIM [\d.]+\))?"
)
_RANGE = re.compile(r"0\.(\d+)-0\.(\d+)")
_SERIES = tuple(f"0.{minor}.0" for minor in range(6, 34))
_UNUSED = ("other", "usage")
_DTYPES = ("auto", "half", "float16", "bfloat16", "float32", "float")
_SAME = 0.005
"""Figures of several releases that differ by less count as one."""


class Start(NamedTuple):
    """A measured start.

    Attributes:
        row: what it printed.
        plans: its plan, for every release that it may be.
        checkpoint: the model.
        asked_of: the device.
    """

    row: dict[str, Any]
    plans: tuple[Plan, ...]
    checkpoint: Checkpoint
    asked_of: Device

    @property
    def is_full(self) -> bool:
        """True where a whole debug log is there."""
        return bool(self.row["completeness"] == "full")

    @property
    def plan(self) -> Plan:
        """The plan, of the oldest release that it may be."""
        return self.plans[0]

    @property
    def verdict(self) -> str | None:
        """What all its plans say; None where they differ."""
        found = {plan.verdict for plan in self.plans}
        return found.pop() if len(found) == 1 else None

    def size(self, *fields: str) -> Quantity | None:
        """The sum of terms of the first rank's budget, or ``tokens``; None where one is not known, or differs by release."""
        sums = [_sum(plan, fields) for plan in self.plans]
        sizes = [size for size in sums if size is not None]
        if len(sizes) < len(sums):
            return None
        values = [size.expected for size in sizes]
        return sizes[0] if max(values) - min(values) <= _SAME * abs(values[0]) else None


def read_starts(folder: Path) -> tuple[list[Start], Counter[str]]:
    """Every start that can be planned, and why the others cannot."""
    found, left_out = [], Counter[str]()
    for line in (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        start = plan_start(row, folder)
        if isinstance(start, str):
            left_out[start] += 1
        else:
            found.append(start)
    return found, left_out


def plan_start(row: dict[str, Any], folder: Path) -> Start | str:
    """The start with its plans, or why it has none."""
    checkpoint = checkpoint_of(row["model_config"] or row["model_id"], folder / "models")
    device = _device(row)
    if checkpoint is None or device is None or "fork" in (row["vllm_version"] or "") or not is_its_model(row):
        return _missing(row, checkpoint)
    try:
        plans = tuple(make_plan(_request(row, checkpoint, device, version)) for version in releases_of(row))
    except FitserveError as error:
        return error.what
    start = Start(row, plans, checkpoint, device)
    if not is_named(row) and not weighs_the_same(start):
        return "with a model only guessed from its shape"
    if start.verdict is None and start.size("kv_cache_bytes") is None:
        return "of a release that decides and is not named"
    return start


def _missing(row: dict[str, Any], checkpoint: Checkpoint | None) -> str:
    """What is not known of a start that cannot be planned."""
    if "fork" in (row["vllm_version"] or ""):
        return "of a fork"
    if checkpoint is None:
        return "without the model's configuration"
    if not is_its_model(row):
        return "with a model only guessed from its shape"
    return "on a device of unknown memory"


def is_its_model(row: dict[str, Any]) -> bool:
    """True where the configuration is the started model's: by its name, or by the weights and the cache that were printed."""
    return is_named(row) or (
        str(row["model_check"]).startswith("VERIFIED") and row["weights_gib"] is not None
    )


def is_named(row: dict[str, Any]) -> bool:
    """True where the start is reported with the model's name."""
    config, told = (row["model_config"] or "").lower(), (row["model_id"] or "").lower()
    return row["model_match"] == "exact" or not config or told == config or config.endswith(f"/{told}")


def weighs_the_same(start: Start) -> bool:
    """False where an inferred model's weights are not those that were printed, to 2 %."""
    found, printed = start.size("weights_bytes"), start.row["weights_gib"]
    return found is not None and bool(printed) and abs(found.expected / GIB / printed - 1) <= 0.02


def releases_of(row: dict[str, Any]) -> tuple[str, ...]:
    """The release, or all that it may be: between two named ones, else the series of its engine."""
    words = row["vllm_version"] or ""
    if found := _RELEASE.fullmatch(words):
        return (found[1],)
    if found := _RANGE.fullmatch(words):
        return tuple(f"0.{minor}.0" for minor in range(int(found[1]), int(found[2]) + 1))
    engine = row.get("engine")
    if engine == "v0":
        return tuple(version for version in _SERIES if not at_least(version, "0.11.0"))
    return tuple(version for version in _SERIES if engine is None or at_least(version, "0.8.0"))


def _device(row: dict[str, Any]) -> Device | None:
    facts = find_device(row["gpu_name"] or "")
    total = row["gpu_total_gib"] or (facts.total_gib if facts else None)
    if not total:
        return None
    numbers = row.get("failure_numbers") or {}
    free = numbers.get("free_gib") if row["outcome"] == "free_memory_check" else None
    is_amd = "AMD" in (row["gpu_name"] or "")
    return Device(
        name=facts.name if facts else str(row["gpu_name"]),
        total_bytes=round(total * GIB),
        free_bytes=None if free is None else round(free * GIB),
        compute_capability=facts.compute_capability if facts else None if is_amd else (8, 0),
        multiprocessors=facts.multiprocessors if facts else None,
        unified=facts.unified if facts else "unified" in (row["gpu_name"] or ""),
    )


def _request(row: dict[str, Any], checkpoint: Checkpoint, device: Device, version: str) -> Request:
    """The question that the start answered."""
    return Request(
        checkpoint=checkpoint,
        model=row["model_config"] or row["model_id"],
        device=device,
        given=given_of(row),
        version=version,
        environment={"VLLM_USE_V1": "0"} if row.get("engine") == "v0" else {},
    )


def given_of(row: dict[str, Any]) -> dict[str, Any]:
    """What was set, and what the log shows of the rest."""
    words = str(row["flags"].get("other") or "")
    given: dict[str, Any] = {"enable_expert_parallel": True} if "expert parallel" in words else {}
    given |= {
        name: value for name, value in row["flags"].items() if value is not None and name not in _UNUSED
    }
    for name, value in (row["defaults"] or {}).items():
        if name in ("max_num_seqs", "max_num_batched_tokens") and value is not None:
            given.setdefault(name, value)
    if given.get("dtype") not in _DTYPES:
        given.pop("dtype", None)
    return given


def _sum(plan: Plan, fields: Sequence[str]) -> Quantity | None:
    cache = plan.kv_cache
    tokens = cache.tokens if isinstance(cache, KvPlan) else None
    found = [tokens if name == "tokens" else getattr(plan.budget[0], name) for name in fields]
    sizes = [size for size in found if isinstance(size, Quantity)]
    if len(sizes) < len(found):
        return None
    expected = sum(size.expected for size in sizes)
    return Quantity(
        low=round(expected - hypot(*(size.expected - size.low for size in sizes))),
        expected=expected,
        high=round(expected + hypot(*(size.high - size.expected for size in sizes))),
        basis=sizes[0].basis,
        source=sizes[0].source,
    )
