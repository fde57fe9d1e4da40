"""``fitserve env`` as its users meet it: real processes, programs on PATH that answer, hang or are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.facts.environment.ask_devices import DeviceReply, DriverFacts, parse_smi_driver
from fitserve.facts.environment.cgroup import Container
from fitserve.facts.environment.devices import described
from fitserve.facts.environment.environment import Environment
from fitserve.facts.environment.host import Host
from fitserve.facts.environment.install import Install
from fitserve.facts.environment.model import ModelIdentity
from fitserve.facts.environment.variables import Variable
from fitserve.facts.probed import Holder, ProbedDevice
from fitserve.report.environment_text import render_environment
from fitserve.units import GIB

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "fitserve", "env"]
SMI = """#!/bin/sh
case "$*" in
  *query-gpu=uuid,driver_version*) echo "GPU-6f1c2d0a-1b2c-4c55-8a1e-0123456789ab, 570.124.06, Enabled";;
  *query-gpu=*) echo "GPU-6f1c2d0a-1b2c-4c55-8a1e-0123456789ab, NVIDIA H100 80GB HBM3, 81559, 531, 71000, 9.0, Disabled";;
  *query-compute-apps=*) echo "GPU-6f1c2d0a-1b2c-4c55-8a1e-0123456789ab, 999999, python3, 9728";;
  *) echo "| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06   CUDA Version: 12.8 |";;
esac
"""


def env(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is installed."""
    (tmp_path / "bin").mkdir()
    return {
        "PATH": str(tmp_path / "bin"),
        "FITSERVE_CACHE_DIR": str(tmp_path / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }


def program(bare: dict[str, str], name: str, text: str) -> None:
    """A program on the bare PATH."""
    path = Path(bare["PATH"], name)
    path.write_text(text)
    path.chmod(0o755)


def test_nothing_is_there(bare: dict[str, str]) -> None:
    """No GPU, no driver, no vLLM: an answer all the same."""
    done = env("--json", **bare)
    answer = json.loads(done.stdout)

    assert 0 == done.returncode
    assert (1, "environment") == (answer["schema"], answer["kind"])
    assert {
        "schema",
        "kind",
        "devices",
        "host",
        "container",
        "engine",
        "flags",
        "variables",
        "model",
    } == answer.keys()
    assert {"unknown": "no vllm on PATH, and no Python there that has it"} == answer["engine"]
    assert 0 < answer["host"]["memory_available_bytes"] <= answer["host"]["memory_total_bytes"]
    assert "vllm  " in env(**bare).stdout


def has_real_driver() -> bool:
    """NVML answers on this machine: a program that plays a driver would not be asked."""
    return Path("/proc/driver/nvidia/version").exists()


@pytest.mark.skipif(has_real_driver(), reason="this machine has a driver of its own")
def test_a_hanging_driver_hangs_nothing(bare: dict[str, str], mark: Any) -> None:
    """The GPUs are unknown, everything else is there, and the hanging program is gone."""
    program(bare, "nvidia-smi", "#!/bin/sh\n/bin/sleep 600\n")

    done = env("--json", "--timeout", "2", **bare, **mark.env)
    answer = json.loads(done.stdout)

    assert 0 == done.returncode
    assert "did not answer within 2 s" in answer["devices"]["unknown"]
    assert answer["host"]["memory_total_bytes"]
    assert [] == mark.left_after(10)


@pytest.mark.skipif(has_real_driver(), reason="this machine has a driver of its own")
def test_a_driver_that_answers(bare: dict[str, str]) -> None:
    """One device as its program tells of it, and that a process here does not see it."""
    program(bare, "nvidia-smi", SMI)

    devices = json.loads(env("--json", **bare).stdout)["devices"]

    assert ("570.124.06", "12.8", []) == (devices["driver"], devices["runtime"], devices["visible"])
    assert {"CUDA_VISIBLE_DEVICES": ""} == devices["selection"]
    gpu = devices["gpus"][0]
    assert ("NVIDIA H100 80GB HBM3", "GPU-6f1c2d0a", "9.0", True) == (
        gpu["name"],
        gpu["uuid"],
        gpu["compute_capability"],
        gpu["ecc"],
    )
    assert [999999] == [holder["pid"] for holder in gpu["processes"]]


def test_what_smi_says_of_the_driver() -> None:
    """The newest wording, and a device that corrects no errors."""
    found = parse_smi_driver(
        "GPU-a, 610.1, [N/A]\nGPU-b, 610.1, Disabled\n", "Driver Version: 610.1  CUDA UMD Version: 13.3"
    )

    assert DriverFacts(version="610.1", runtime="13.3", ecc={"GPU-b": False}) == found


def test_exit_codes(bare: dict[str, str], tmp_path: Path) -> None:
    """A model or an engine that is not there is 3; no vLLM to ask is 4."""
    assert 3 == env(tmp_path / "nowhere", **bare).returncode
    assert 3 == env("--engine", tmp_path / "nowhere", **bare).returncode
    assert 4 == env("--flags", **bare).returncode
    assert 2 == env("--timeout", "0", **bare).returncode


def reply() -> DeviceReply:
    """A machine with one whole device and one in two parts."""
    whole = ProbedDevice(
        index=0, name="NVIDIA H100 80GB HBM3", total_bytes=79 * GIB, free_bytes=70 * GIB, compute_capability=(9, 0), source="NVML",
        uuid="GPU-6f1c2d0a-1b2c-4c55-8a1e-0123456789ab",
        processes=(Holder(pid=812, name="python3", owner="anna", held_bytes=9 * GIB), Holder(pid=9, name="unknown")),
    )  # fmt: skip
    parts = [
        ProbedDevice(
            index=1, name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", total_bytes=39 * GIB, free_bytes=39 * GIB, compute_capability=(9, 0),
            source="NVML", uuid=f"MIG-0fd1a2c{at}-51e3-5a0e-9f25-2d1b7c1a99e0", parent="GPU-1",
        )
        for at in (4, 5)
    ]  # fmt: skip
    return DeviceReply(
        devices=(whole, *parts),
        driver=DriverFacts(version="570.124.06", runtime="12.8", ecc={whole.uuid: True, "GPU-1": False}),
    )


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({}, (0,)),
        ({"CUDA_VISIBLE_DEVICES": "MIG-0fd1a2c5"}, (2,)),
        ({"CUDA_VISIBLE_DEVICES": "7"}, ()),
        ({"CUDA_VISIBLE_DEVICES": "GPU-6f"}, (0,)),
    ],
)
def test_visible_devices(environ: dict[str, str], seen: tuple[int, ...]) -> None:
    """What the variables resolve to."""
    assert seen == described(reply(), environ).visible


def test_text() -> None:
    """A whole answer as text."""
    assert (HERE / "machine.txt").read_text() == render_environment(machine()) + "\n"


def machine() -> Environment:
    """A server with two devices, in a container."""
    stored = msgspec.json.decode((HERE / "machine.json").read_bytes())
    return Environment(
        devices=described(reply(), {"CUDA_VISIBLE_DEVICES": "0"}),
        host=msgspec.convert(stored["host"], Host),
        container=msgspec.convert(stored["container"], Container),
        engine=msgspec.convert(stored["engine"], Install),
        variables=msgspec.convert(stored["variables"], tuple[Variable, ...]),
        model=msgspec.convert(stored["model"], ModelIdentity),
    )
