"""A simulated machine as tools see it."""

import csv
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitserve.errors import UsageError
from fitserve.facts.machine import probe_devices
from fitserve.simulator.machine import device_called, free_bytes, hold, known_devices

GIB = 1 << 30


def ask(place: Any, *words: str) -> str:
    """What the machine's ``nvidia-smi`` says."""
    return subprocess.run(
        ["nvidia-smi", *words], env=place.environ, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("device", [one.short for one in known_devices()])
def test_the_driver_tells_what_cuda_counts(
    device: str, site: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total less what is reserved is the total that vLLM sees, within a MiB."""
    place = site(device, count=2)
    monkeypatch.setenv("PATH", place.environ["PATH"])
    found = probe_devices()

    assert [place.machine.device.name] * 2 == [one.name for one in found]
    assert all(abs(one.total_bytes - place.machine.device.total_bytes) < 1 << 20 for one in found)
    assert all(one.compute_capability == place.machine.device.capability for one in found)


def test_a_neighbour_takes_memory_until_it_ends(site: Callable[..., Any]) -> None:
    """What a process holds is missing, on its device alone, and is free again when it is gone."""
    place = site(count=2)
    neighbour = subprocess.Popen(["sleep", "60"])
    folder = place.folder / "machine"
    hold(folder, {1: 10 * GIB}, name="python3", pid=neighbour.pid)
    with_it = [free_bytes(folder, place.machine, index) for index in (0, 1)]
    rows = list(
        csv.reader(
            ask(place, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader").splitlines()
        )
    )
    neighbour.send_signal(signal.SIGKILL)
    neighbour.wait()

    total = place.machine.device.total_bytes
    assert [total, total - 10 * GIB] == with_it
    assert [[str(neighbour.pid), "10240 MiB"]] == [[cell.strip() for cell in row[1:]] for row in rows]
    assert total == free_bytes(folder, place.machine, 1)


def test_a_second_engine_lacks_what_the_first_holds(site: Callable[..., Any], free_port: int) -> None:
    """Two servers on one device: the second one's check of free memory fails."""
    place = site("H100", count=1, vllm_version="0.19.0")
    first, log = place.start("--port", str(free_port), "--max-model-len", "8192")
    place.until(log, "Application startup complete.", first)
    second, other = place.start("--port", str(free_port + 1), "--max-model-len", "8192")

    assert (None, 1) == (first.poll(), second.wait())
    assert "on startup is less than desired GPU memory utilization (0.9, 71.27 GiB)" in other.read_text()


def test_the_table_and_the_list(site: Callable[..., Any]) -> None:
    """The plain table names the device; ``-L`` has a line for each."""
    place = site("L40S", count=3)

    assert "NVIDIA L40S" in ask(place)
    assert 3 == len(ask(place, "-L").splitlines())


@pytest.mark.parametrize(
    ("words", "name"), [("RTX 4090", "NVIDIA GeForce RTX 4090"), ("h100", "NVIDIA H100 80GB HBM3")]
)
def test_devices_are_found_by_their_words(words: str, name: str) -> None:
    """As people write them."""
    assert name == device_called(words).name


def test_an_unknown_device_is_a_usage_error() -> None:
    """The hint lists those that there are."""
    with pytest.raises(UsageError) as caught:
        device_called("RTX 9999")

    assert "RTX 4090" in str(caught.value.hint)


def test_the_module_and_the_version(site: Callable[..., Any], tmp_path: Path) -> None:
    """``vllm --version`` and ``python -m vllm.entrypoints.openai.api_server`` are the same release."""
    place = site(vllm_version="0.12.0")
    version = subprocess.run(
        ["vllm", "--version"], env=place.environ, capture_output=True, text=True, check=True
    )
    module = subprocess.run(
        ["python", "-m", "vllm.entrypoints.openai.api_server", "--max-model-length", "1"],
        env=place.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "0.12.0" == version.stdout.strip()
    assert (2, "api_server.py: error: unrecognized arguments: --max-model-length") == (
        module.returncode,
        module.stderr.splitlines()[-1],
    )
