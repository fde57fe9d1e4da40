"""Devices: two tools do not fight over one, memory is watched while a trial runs, and is free again before the next."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.fix.loop import fix
from fitserve.fix.options import Options
from fitserve.store.journal import open_journal
from fitserve.trial.progress import Quiet
from fitserve.units import MIB

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def devices(tool: Any, fake_vllm: Path, tmp_path: Path) -> Path:
    """Two devices, as ``nvidia-smi`` tells of them: a file each; the fake vLLM holds 2,000 MiB of the first."""
    folder = tmp_path / "devices"
    folder.mkdir()
    (folder / "GPU-aaaa").write_text("all 2000\nghost 100\n")
    (folder / "GPU-bbbb").write_text("")
    program = fake_vllm / "nvidia-smi"
    source = Path(__file__).parent / "programs" / "nvidia_smi.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{source}" "$@"\n')
    program.chmod(0o755)
    tool.env["FAKE_SMI"] = str(folder)
    return folder


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else."""
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as process:
        yield process
        process.kill()


def launch(port: int, *options: str) -> list[str]:
    """A launch that serves."""
    return ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "4096", *options]


def start_until(tool: Any, words: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start the tool and read its progress up to some words."""
    process: subprocess.Popen[str] = tool.start(*arguments, **env)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return process
    raise AssertionError("".join(seen))


def test_memory_is_sampled_while_a_trial_runs(tool: Any, port: int, devices: Path) -> None:
    """The trial's own processes and others apart, with the peak in the text."""
    code, answer = tool.fix(launch=launch(port), FAKE_VLLM="naps", CUDA_VISIBLE_DEVICES="0")
    (trial,) = tool.record()["trials"]
    samples = trial["samples"]
    (device,) = samples["devices"]

    assert (0, "nvidia-smi", "GPU-aaaa") == (code, samples["source"], device["device"])
    assert {len(samples["seconds"])} == {len(device[name]) for name in ("used_bytes", "own_bytes")}
    assert (2000 * MIB, 2100 * MIB) == (max(device["own_bytes"]), max(device["used_bytes"]))
    assert 2000 * MIB == answer["trials"][0]["memory"]["peak_gpu_bytes"]
    assert 2000 * MIB == max(peak["own_bytes"] for peak in trial["memory"]["peaks"])
    assert "and 1.95 GiB on the devices" in tool.run("report", "last").stdout


def test_a_neighbour_that_takes_memory_is_named(
    tool: Any, port: int, devices: Path, neighbour: subprocess.Popen[bytes]
) -> None:
    """Who it is, and how much it took, in the trial's notes and in the text."""
    options = ["fix", "--json", "--", *launch(port)]
    process = start_until(
        tool, "trial 1: weights", *options, FAKE_VLLM="naps", CUDA_VISIBLE_DEVICES="GPU-aaaa"
    )
    (devices / "GPU-aaaa").write_text(f"all 2000\n{neighbour.pid} 3072\n")
    _, err = process.communicate(timeout=60)
    (trial,) = tool.record()["trials"]
    (note,) = trial["notes"]

    assert 0 == process.returncode, err
    assert note.startswith(f"process {neighbour.pid} (python")
    assert note.endswith("took 3.00 GiB of device GPU-aaaa while this trial ran")
    assert note in err
    assert 3072 * MIB == max(trial["samples"]["devices"][0]["others_bytes"])
    assert note in tool.run("report", "last").stdout


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
def test_a_driver_in_trouble_changes_nothing(trouble: str, tool: Any, port: int, devices: Path) -> None:
    """In the middle of a trial it stops answering: the trial goes on to its proof, with what was seen before."""
    process = start_until(tool, "trial 1: weights", "fix", "--json", "--", *launch(port), FAKE_VLLM="naps")
    (devices / trouble).touch()
    out, err = process.communicate(timeout=120)

    assert (0, "served") == (process.returncode, msgspec.json.decode(out)["outcome"]), err


def test_two_tools_do_not_share_a_device(tool: Any, port: int, devices: Path) -> None:
    """The second says who holds it and ends with 4; on another device it goes on."""
    first = start_until(
        tool, "trial 1: weights", "fix", "--", *launch(port), FAKE_VLLM="silent", CUDA_VISIBLE_DEVICES="0"
    )
    run = tool.record()["run"]
    same = tool.run("fix", "--", *launch(port + 1), CUDA_VISIBLE_DEVICES="GPU-aaaa")
    under_run = tool.run("run", "--", *launch(port + 1))
    other = tool.run("fix", "--", *launch(port + 1), CUDA_VISIBLE_DEVICES="1")
    first.kill()
    first.communicate()

    assert (4, 4, 0) == (same.returncode, under_run.returncode, other.returncode), other.stderr
    assert f"device GPU-aaaa is in use by process {first.pid}, run {run}, since 20" in same.stderr
    assert f"in use by process {first.pid}" in under_run.stderr
    assert "trial 1:" not in same.stderr


def test_a_machine_without_devices_is_one(tool: Any, port: int) -> None:
    """Without a device two trials share the machine's processors and memory: the second waits if it is told to."""
    first = start_until(tool, "trial 1: weights", "fix", "--", *launch(port), FAKE_VLLM="silent")
    refused = tool.run("fix", "--", *launch(port + 1))
    waiting = start_until(tool, "waiting for", "fix", "--wait", "60", "--", *launch(port + 1))
    first.kill()
    first.communicate()
    _, err = waiting.communicate(timeout=60)

    assert (4, 0) == (refused.returncode, waiting.returncode), err
    assert f"this machine is in use by process {first.pid}" in refused.stderr


def test_a_supervised_server_shares_its_device_once_it_serves(tool: Any, port: int) -> None:
    """``run`` holds the device while it starts, when memory is measured; then others may start beside it."""
    first = tool.start("run", "--", *launch(port))
    for line in first.stdout:
        if "startup complete" in line:
            break
    second = tool.run("fix", "--wait", "20", "--", *launch(port + 1))
    first.kill()
    first.communicate()

    assert 0 == second.returncode, second.stderr


def test_memory_that_is_not_given_back_stops_the_next_start(
    *,
    tool: Any,
    port: int,
    devices: Path,
    neighbour: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Where the next start would need it, the run ends with the name of its holder; where not, it goes on."""
    for name, value in tool.env.items():
        monkeypatch.setenv(name, value)

    class TakesMemory(Quiet):
        def trial_ended(self, trial: Any) -> None:
            (devices / "GPU-aaaa").write_text(f"all 2000\n{neighbour.pid} 4096\n")

    def run(name: str, *options: str) -> Any:
        (devices / "GPU-aaaa").write_text("all 2000\n")
        command = launch(port, "--kv-cache-memory-bytes=32M", *options)
        return fix(
            command,
            options=Options(free_seconds=0.5),
            progress=TakesMemory(),
            journal=open_journal(tool.env),
            run=name,
            environ=tool.env,
        )

    full, room = run("a"), run("b", "--gpu-memory-utilization", "0.5")

    assert ("not-reached", 1) == (full.outcome, len(full.trials))
    assert full.reason.startswith(
        "gpu-memory-taken: device GPU-aaaa holds 4.00 GiB more than before the first trial: "
        f"process {neighbour.pid} (python"
    )
    assert full.reason.endswith("with 4.00 GiB")
    assert ("served", 2) == (room.outcome, len(room.trials))
