"""Plans beside what vLLM's own code computes for published models on pretended devices, 0.15 to 0.33."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.evidence.models import published, published_folder
from bench.evidence.oracle import (
    Answer,
    agreement,
    ask_plans,
    options_of,
    plan_json,
    read_oracle,
    request_of,
    weights_error,
)
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs
from fitserve.memory.weights import rank_weights
from fitserve.units import GIB, Unknown

ORACLE = Path(__file__).parents[3] / "shared" / "kv-oracle.jsonl"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not ORACLE.exists(), reason="the reference folder is not beside the checkout"),
    pytest.mark.skipif(published_folder() is None, reason="aiconfigurator-core is not installed"),
]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The reference table."""
    return read_oracle(ORACLE)


@pytest.fixture(scope="module")
def answers(rows: list[dict[str, Any]]) -> list[Answer]:
    """A plan for every row and every size of the cache."""
    return ask_plans(rows)


def named(answer: Answer) -> str:
    """Which question it is."""
    row = answer.row
    return (
        f"{row['model']} {row['vllm_version']} {row['settings']} {answer.expected['kv_cache_memory_bytes']}"
    )


def test_weights_are_near(answers: list[Answer]) -> None:
    """Nine rows in ten are within 0.2 %, and none is off by 2 % without saying that it is not known."""
    errors = {
        f"{named(answer)} {whole}": weights_error(answer, with_buffers=whole)
        for answer in answers
        for whole in (False, True)
    }
    near = [name for name, error in errors.items() if isinstance(error, float) and error <= 0.002]
    far = {name: error for name, error in errors.items() if isinstance(error, float) and error > 0.02}

    assert far == {}
    assert 0.9 * len(errors) <= len(near), sorted(errors.keys() - near)


def test_buffers_are_near(rows: list[dict[str, Any]]) -> None:
    """Buffers are within a thousandth of the parameters: caches of positions count, rounding does not."""
    far = []
    for row in rows:
        found = rank_weights(published(row["model"]), options_of(row))
        if isinstance(found, tuple):
            off = abs(found[0].buffer_bytes.expected - row["buffer_bytes_rank0"])
            if off > row["param_bytes_rank0"] / 1000:
                far.append(f"{row['model']} {row['vllm_version']}: {off:,}")

    assert far == []


def test_a_given_cache_is_laid_out_as_vllm_lays_it_out(answers: list[Answer]) -> None:
    """At least 95 of 100 plans have vLLM's blocks, tokens and concurrency, or its refusal; the rest say that they cannot tell."""
    different = [named(answer) for answer in answers if agreement(answer) == "different"]
    equal = sum(agreement(answer) == "equal" for answer in answers)

    assert different == []
    assert 0.95 <= equal / len(answers)


def test_groups_and_needs_are_vllms_own(rows: list[dict[str, Any]]) -> None:
    """Where there is an answer, the groups of layers and the bytes of a refused request are vLLM's too."""
    wrong = []
    for row in rows:
        options = options_of(row)
        specs = layer_specs(published(row["model"]).config, options)
        for expected in row["capacity"]:
            size = expected["kv_cache_memory_bytes"]
            found = specs if isinstance(specs, Unknown) else capacity(specs, options, size)
            if not isinstance(found, Unknown) and not is_laid_out_so(expected, found):
                wrong.append(f"{row['model']} {row['vllm_version']} {row['settings']} {size}: {found}")

    assert wrong == []


def is_laid_out_so(expected: dict[str, Any], found: KvCache | Refusal) -> bool:
    """True where what is not in a plan is the same."""
    if isinstance(found, Refusal):
        return "error" in expected and round(found.needed_bytes / GIB, 2) == expected["needed_gib"]
    groups = [
        (group["block_size"], group["layers"], group["page_bytes"]) for group in expected.get("groups", ())
    ]
    return groups == [(group.block_size, group.layers, group.page_bytes) for group in found.groups]


MODELS = (
    "Qwen/Qwen3-32B",
    "deepseek-ai/DeepSeek-R1",
    "openai/gpt-oss-120b",
    "Qwen/Qwen3.5-27B",
    "nvidia/GLM-5-NVFP4",
)


@pytest.mark.parametrize("model", MODELS)
def test_the_command_says_what_the_plan_says(rows: list[dict[str, Any]], model: str, tmp_path: Path) -> None:
    """``plan --json`` of a folder with the configuration alone has the same cache, with weights that do not fit as well."""
    row = next(row for row in rows if row["model"] == model and row["vllm_version"] == "0.32.0")
    size = row["capacity"][-1]["kv_cache_memory_bytes"]
    inside = published_folder()
    assert inside is not None
    for name in ("config.json", "hf_quant_config.json"):
        source = inside / f"{model.replace('/', '--')}_{name}"
        if source.exists():
            shutil.copy(source, tmp_path / name)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in row["settings"].items()]
    device = ["--gpu", row["device"]["name"], "--gpu-total-gib", str(row["device"]["total_gib"])]
    arguments = ["plan", str(tmp_path), "--json", "--vllm-version", "0.32.0", *device, *options]
    ended = subprocess.run(
        [sys.executable, "-m", "fitserve", *arguments, f"--kv-cache-memory-bytes={size}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said, planned = json.loads(ended.stdout), plan_json(request_of(row, size))

    assert said["kv_cache"] == planned["kv_cache"]
    assert [told(rank) for rank in said["budget"]] == [told(rank) for rank in planned["budget"]]
    assert agreement(Answer(row, row["capacity"][-1], said)) == "equal"


def told(rank: dict[str, Any]) -> tuple[int, int]:
    """The weights and the cache of a rank."""
    return rank["weights_bytes"]["expected"], rank["kv_cache_bytes"]["expected"]
