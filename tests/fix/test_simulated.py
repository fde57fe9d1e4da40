"""The loop on simulated machines: their vLLM shares nothing with the memory model, and has memory of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitserve.simulator.machine import Machine, device_called, hold, make_machine
from fitserve.simulator.models import make_model

GIB = 1 << 30


class Case:
    """One machine with one model, and the tool on it."""

    def __init__(self, tool: Any, folder: Path) -> None:
        self.tool = tool
        self.folder = folder
        self.neighbours: list[subprocess.Popen[bytes]] = []

    def fix(
        self, options: str, words: str, *, device: str, model: str, version: str = "0.19.0", count: int = 1
    ) -> tuple[int, dict[str, Any]]:
        """Fix ``vllm serve`` of the model with these words; the exit code and the answer."""
        machine = Machine(device=device_called(device), count=count, vllm_version=version, speed=2000.0)
        programs = make_machine(self.folder / "machine", machine)
        path = make_model(self.folder / "model", model)
        for process in self.neighbours:
            hold(self.folder / "machine", {0: process.pid and 8 * GIB}, name="neighbour", pid=process.pid)
        launch = ["vllm", "serve", str(path), *words.split()]
        answer: tuple[int, dict[str, Any]] = self.tool.fix(
            *options.split(), launch=launch, PATH=f"{programs}:{os.environ['PATH']}"
        )
        return answer

    def neighbour(self) -> None:
        """A process that holds 8 GiB of the first device."""
        self.neighbours.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))

    def stop(self) -> None:
        """End the neighbours."""
        for process in self.neighbours:
            process.kill()
            process.wait()


@pytest.fixture
def case(tool: Any, tmp_path: Path) -> Iterator[Case]:
    """A case in a folder of its own."""
    found = Case(tool, tmp_path)
    yield found
    found.stop()


def story(answer: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    """Each trial's cause, and the flag that it changed."""
    return [(trial["cause"], (trial["change"] or {}).get("flag")) for trial in answer["trials"]]


def test_a_short_cache_takes_two_starts(case: Case) -> None:
    """The share of the device is raised by what is missing; the context stays."""
    code, answer = case.fix(
        "--goal-context 16384",
        "--max-model-len 40960 --gpu-memory-utilization 0.85",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (0, "served") == (code, answer["outcome"])
    assert [("kv-cache-smaller-than-context", None), (None, "gpu_memory_utilization")] == story(answer)
    assert answer["trials"][1]["change"]["predicted"]["verdict"] == "starts"


def test_a_goal_out_of_reach_is_recognised(case: Case) -> None:
    """It takes no more than one start beyond the first; what would fit is said."""
    code, answer = case.fix(
        "--goal-context 32768 --goal-concurrency 6",
        "--max-model-len 32768",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (1, "not-reached") == (code, answer["outcome"])
    assert len(answer["trials"]) <= 2
    assert re.search(r"at best \d+ at once of 32,768 tokens", answer["reason"])


def test_a_neighbour_is_left_alone(case: Case) -> None:
    """The share is lowered to what the neighbour leaves free; the neighbour lives."""
    case.neighbour()
    code, answer = case.fix(
        "--goal-context 4096", "--max-model-len 4096", device="A100 80GB", model="Qwen/Qwen3-8B"
    )

    assert (0, [("gpu-memory-taken", None), (None, "gpu_memory_utilization")]) == (code, story(answer))
    assert case.neighbours[0].poll() is None


def test_devices_are_used_that_are_there(case: Case) -> None:
    """Weights that one device cannot hold are divided over both."""
    code, answer = case.fix(
        "--goal-context 4096",
        "--max-model-len 4096",
        device="RTX 4090",
        count=2,
        model="Qwen/Qwen3-14B",
    )

    assert code == 0
    assert answer["trials"][0]["cause"] == "weights-do-not-fit"
    assert answer["trials"][-1]["outcome"] == "served"


def test_a_removed_option_is_taken_out(case: Case) -> None:
    """An option that the release no longer has is no matter of memory."""
    code, answer = case.fix(
        "--goal-context 4096",
        "--max-model-len 4096 --swap-space 4",
        device="H100",
        model="Qwen/Qwen3-8B",
        version="0.32.0",
    )

    assert (0, [("unknown-flag", None), (None, "swap_space")]) == (code, story(answer))


def test_what_is_left_is_spent(case: Case) -> None:
    """After the proof a longer context is tried, and proven too."""
    code, answer = case.fix(
        "--grow context", "--max-model-len 4096", device="RTX 4090", model="Qwen/Qwen3-8B"
    )
    first, grown = answer["trials"]

    assert (0, "served", "served") == (code, first["outcome"], grown["outcome"])
    assert (grown["change"]["flag"], grown["change"]["purpose"]) == ("max_model_len", "growth")
    assert answer["verification"]["max_model_len"] == grown["change"]["to"] > 4096
    assert f"--max-model-len {grown['change']['to']}" in answer["command"]


def test_a_dry_run_foresees_the_changes(case: Case) -> None:
    """Nothing is started; what is expected, and which change would be made, is said."""
    code, answer = case.fix(
        "--dry-run --vllm-version 0.19.0 --goal-context 16384",
        "--max-model-len 40960 --gpu-memory-utilization 0.85",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (0, "fix-plan") == (code, answer["kind"])
    assert answer["forecast"]["cause"] == "kv-cache-smaller-than-context"
    assert answer["forecast"]["changes"][0]["flag"] == "gpu_memory_utilization"


def test_a_start_that_served_too_little_corrects_the_next(case: Case) -> None:
    """What a served start has printed of its memory counts as much as what a failed one has."""
    code, answer = case.fix(
        "--goal-context 14336 --goal-concurrency 3",
        "--max-model-len 16384",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (0, [("preemption-thrash", None), (None, "gpu_memory_utilization")]) == (code, story(answer))
    printed = answer["trials"][1]["memory"]["printed"]["kv_tokens"]
    predicted = answer["trials"][1]["change"]["predicted"]["kv_tokens"]
    assert predicted == pytest.approx(printed, rel=0.005)


def test_a_dry_run_begins_with_what_the_goal_rules_out(case: Case) -> None:
    """The first start has the goal's context; the changes after it are those that are expected then."""
    code, answer = case.fix(
        "--dry-run --vllm-version 0.19.0 --goal-context 16384",
        "--max-model-len 4096 --gpu-memory-utilization 0.75",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (0, "max_model_len", 16384) == (code, answer["change"]["flag"], answer["change"]["to"])
    assert "--max-model-len 16384" in answer["command"]
    assert "gpu_memory_utilization" == answer["forecast"]["changes"][0]["flag"]


def test_fewer_sequences_than_the_goal_are_never_started(case: Case) -> None:
    """As many requests as are to run at once may run from the first start on."""
    code, answer = case.fix(
        "--goal-concurrency 6",
        "--max-num-seqs 4 --max-model-len 4096",
        device="RTX 4090",
        model="Qwen/Qwen3-8B",
    )

    assert (0, [(None, "max_num_seqs")]) == (code, story(answer))
    assert 6 == answer["trials"][0]["change"]["to"]


def test_weights_stay_on_the_devices_where_a_cheaper_change_does(case: Case) -> None:
    """A part of the weights in the host's memory would do in one start, and slow down every step: the second device goes before it."""
    code, answer = case.fix(
        "--goal-context 10240 --goal-concurrency 1",
        "--max-model-len 10240",
        device="L4",
        count=4,
        model="Qwen/Qwen3-14B",
        version="0.32.0",
    )

    assert (0, "weights-do-not-fit") == (code, answer["trials"][0]["cause"])
    assert story(answer)[1][1] in ("tensor_parallel_size", "pipeline_parallel_size")
    assert "cpu_offload_gb" not in [flag for _, flag in story(answer)]
