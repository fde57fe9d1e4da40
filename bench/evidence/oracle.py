"""What vLLM's own code computes for published models, and what a plan says of them.

A row of ``kv-oracle.jsonl`` is a model, a pretended device, settings and a release: the first rank's parameters and buffers in
bytes, and for some sizes of the KV cache the blocks, the tokens and the concurrency, or the refusal.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from bench.evidence.models import published
from fitserve.memory.options import Device, EngineOptions
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.units import GIB

Agreement = Literal["equal", "cannot tell", "different"]


class Answer(NamedTuple):
    """A plan beside what vLLM computes.

    Attributes:
        row: vLLM's figures.
        expected: those for one size of the KV cache.
        plan: the plan as ``plan --json`` prints it.
    """

    row: dict[str, Any]
    expected: dict[str, Any]
    plan: dict[str, Any]


def read_oracle(path: Path) -> list[dict[str, Any]]:
    """The rows of the table."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def device_of(row: dict[str, Any]) -> Device:
    """A row's pretended device."""
    major, minor = row["device"]["compute_capability"].split(".")
    return Device(
        name=row["device"]["name"],
        total_bytes=round(row["device"]["total_gib"] * GIB),
        compute_capability=(int(major), int(minor)),
    )


def options_of(row: dict[str, Any]) -> EngineOptions:
    """A row's settings as vLLM resolved them; the block size is left to be found."""
    resolved = {name: value for name, value in row["resolved"].items() if name != "block_size"}
    return EngineOptions(
        vllm_version=row["vllm_version"], device=device_of(row), **{**row["settings"], **resolved}
    )


def request_of(row: dict[str, Any], kv_cache_bytes: int) -> Request:
    """What a user would ask who wants that KV cache."""
    return Request(
        checkpoint=published(row["model"]),
        model=row["model"],
        device=device_of(row),
        given={**row["settings"], "kv_cache_memory_bytes": kv_cache_bytes},
        version=row["vllm_version"],
    )


def ask_plans(rows: Sequence[dict[str, Any]]) -> list[Answer]:
    """A plan for each row and each of its sizes."""
    return [
        Answer(row, expected, plan_json(request_of(row, expected["kv_cache_memory_bytes"])))
        for row in rows
        for expected in row["capacity"]
    ]


def plan_json(request: Request) -> dict[str, Any]:
    """The plan as ``plan --json`` prints it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(make_plan(request)))
    return found


def weights_error(answer: Answer, *, with_buffers: bool = False) -> float | str:
    """How far the first rank's parameters are off, as a share of them, or all its weights; or why they are not known."""
    found = answer.plan["budget"][0]["weights_bytes" if with_buffers else "parameter_bytes"]
    if "unknown" in found:
        return str(found["unknown"])
    held = answer.row["param_bytes_rank0"] + (answer.row["buffer_bytes_rank0"] if with_buffers else 0)
    return abs(float(found["expected"]) / held - 1)


def agreement(answer: Answer) -> Agreement:
    """Whether blocks, tokens and concurrency, or the longest context of a refusal, are vLLM's."""
    plan, expected = answer.plan, answer.expected
    cache = plan["kv_cache"]
    if "error" in expected:
        longest = plan["max_model_len_that_fits"]
        if "unknown" in longest:
            return "cannot tell"
        is_no = plan["verdict"] == "does-not-start"
        return (
            "equal" if is_no and longest["expected"] == expected["estimated_max_model_len"] else "different"
        )
    if "unknown" in cache:
        return "cannot tell"
    found = (cache["num_blocks"]["expected"], cache["tokens"]["expected"], cache["max_concurrency"])
    same = found == (expected["num_blocks"], expected["tokens"], expected["max_concurrency"])
    return "equal" if same else "different"
