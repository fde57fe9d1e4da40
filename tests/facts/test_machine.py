"""What a machine has: devices and who holds their memory, as drivers list them; the host's memory as its node tells."""

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.amd import ask_amdsmi, parse_amd_smi, parse_rocm_smi
from fitserve.facts.host import parse_node, probe_host
from fitserve.facts.machine import probe_devices
from fitserve.facts.nvidia import ask_nvml, ask_smi, parse_apps, parse_smi
from fitserve.facts.probed import ProbedDevice, usable_bytes
from fitserve.facts.visible import visible
from fitserve.units import GIB, KIB, MIB

H100 = "GPU-1, NVIDIA H100 80GB HBM3, 81559, 473, 81080, 9.0, Disabled\n"
OWN = f"GPU-1, {os.getpid()}, /usr/bin/python3, 4000\nGPU-1, 4194305, [Not Found], [N/A]\n"
LIST = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
  MIG 3g.40gb     Device  0: (UUID: MIG-aaaa)
  MIG 1g.10gb     Device  1: (UUID: MIG-bbbb)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
"""


def test_a_device_whose_reserve_is_told() -> None:
    """What the driver keeps is taken off, as ``cudaMemGetInfo`` does."""
    (found,) = parse_smi(H100)

    assert (found.name, found.uuid, found.compute_capability) == ("NVIDIA H100 80GB HBM3", "GPU-1", (9, 0))
    assert found.total_bytes == (81559 - 473) * MIB
    assert found.free_bytes == 81080 * MIB


def test_a_device_whose_reserve_is_not_told() -> None:
    """The catalogue's total counts for a device that it knows with that much on its board; under WSL nothing is kept."""
    assert usable_bytes("NVIDIA L4", 23034 * MIB, 0) == round(22.04 * GIB)
    assert usable_bytes("NVIDIA L4", 23034 * MIB, 0, wsl=True) == 23034 * MIB
    assert usable_bytes("NVIDIA L4", 8000 * MIB, 0) == 8000 * MIB
    assert usable_bytes("a device of tomorrow", 8000 * MIB, 0) == 8000 * MIB


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "GPU-1, GPU, [N/A], [N/A], [N/A], [N/A], [N/A]\n"]
)
def test_an_answer_without_devices(text: str) -> None:
    """What is no device is none."""
    assert parse_smi(text, host=(64 * GIB, 32 * GIB)) == ()


def test_a_name_with_a_comma() -> None:
    """Only the last fields are split off."""
    (found,) = parse_smi("GPU-1, Odd, Name, 1000, [N/A], 900, 8.6, [N/A]\n")

    assert (found.name, found.free_bytes) == ("Odd, Name", 900 * MIB)


def test_a_device_that_shares_the_host_s_memory() -> None:
    """The driver tells no size: the host's memory counts."""
    (found,) = parse_smi(
        "GPU-1, NVIDIA GB10, [N/A], [N/A], [N/A], 12.1, [N/A]\n", host=(128 * GIB, 100 * GIB)
    )

    assert (found.total_bytes, found.free_bytes, found.unified) == (128 * GIB, 100 * GIB, True)


def test_who_holds_a_device() -> None:
    """Each process with its program, its owner where it is this machine's, and what it holds where that is told."""
    (found,) = parse_smi(H100, apps=OWN)

    own, other = found.processes
    assert (own.pid, own.name, own.held_bytes) == (os.getpid(), "/usr/bin/python3", 4000 * MIB)
    assert own.owner
    assert (other.name, other.owner, other.held_bytes) == ("unknown", None, None)
    assert found.held_bytes == 4000 * MIB


def test_a_program_with_commas_in_its_name() -> None:
    """The size is behind the last comma."""
    found = parse_apps("GPU-1, 4194305, python -c a,b, 12\n")

    assert found["GPU-1"][0].name == "python -c a,b"
    assert found["GPU-1"][0].held_bytes == 12 * MIB


def test_parts_of_a_device_stand_for_it() -> None:
    """A device in MIG mode is its instances, each with its own processes."""
    text = H100.replace("Disabled", "Enabled") + H100.replace("GPU-1", "GPU-2")
    first, second, whole = parse_smi(text, apps="MIG-bbbb, 4194305, vllm, 1000\n", parts=LIST)

    assert (first.uuid, first.parent, first.total_bytes) == ("MIG-aaaa", "GPU-1", 40 * 10**9)
    assert second.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert second.free_bytes == 10 * 10**9 - 1000 * MIB
    assert (whole.uuid, whole.parent, whole.index) == ("GPU-2", "", 1)


@pytest.mark.parametrize("knows_new_fields", [True, False])
def test_the_program_is_asked_where_nothing_else_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_new_fields: bool
) -> None:
    """Drivers before 510 refuse fields that they do not know, and are asked for fewer."""
    new = "echo 'GPU-7, NVIDIA L4, 23034, 450, 22000, 8.9, [N/A]'"
    old = "echo 'GPU-7, NVIDIA L4, 23034, 22000'"
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"""#!/bin/sh
case "$1" in
  *reserved*) {new if knows_new_fields else "exit 2"} ;;
  --query-gpu*) {old} ;;
  --query-compute-apps*) echo 'GPU-7, 4194305, other, 500' ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    (found,) = ask_smi()

    assert (found.uuid, found.free_bytes) == ("GPU-7", 22000 * MIB)
    assert found.total_bytes == ((23034 - 450) * MIB if knows_new_fields else round(22.04 * GIB))
    assert found.processes[0].held_bytes == 500 * MIB


def device(index: int, **values: Any) -> ProbedDevice:
    """A device for the questions of what is visible."""
    known = {
        "name": "H100",
        "total_bytes": 80 * GIB,
        "free_bytes": 80 * GIB,
        "compute_capability": (9, 0),
        "source": "NVML",
        "uuid": f"GPU-{index}000",
    }
    return ProbedDevice(index=index, **{**known, **values})


MIXED = (device(0, compute_capability=(8, 6), total_bytes=24 * GIB), device(1), device(2))
PARTS = (
    device(0, uuid="MIG-aa", parent="GPU-0000"),
    device(0, uuid="MIG-bb", parent="GPU-0000"),
)


@pytest.mark.parametrize(
    ("devices", "environ", "expected"),
    [
        (MIXED, {}, ["GPU-1000", "GPU-2000", "GPU-0000"]),
        (MIXED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["GPU-0000", "GPU-1000", "GPU-2000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "2"}, ["GPU-0000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["GPU-2000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-2, gpu"}, ["GPU-2000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-"}, []),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["GPU-1000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "0,9,1"}, ["GPU-1000"]),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "1,1"}, []),
        (MIXED, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (PARTS, {}, ["MIG-aa"]),
        (PARTS, {"CUDA_VISIBLE_DEVICES": "MIG-bb"}, ["MIG-bb"]),
        (PARTS, {"CUDA_VISIBLE_DEVICES": "1"}, ["MIG-bb"]),
        (
            tuple(device(at, source="amdsmi", compute_capability=None) for at in range(4)),
            {"ROCR_VISIBLE_DEVICES": "1,GPU-3000", "HIP_VISIBLE_DEVICES": "1"},
            ["GPU-3000"],
        ),
        (
            tuple(device(at, source="rocm-smi", compute_capability=None) for at in range(2)),
            {"CUDA_VISIBLE_DEVICES": "1"},
            ["GPU-1000"],
        ),
    ],
)
def test_what_a_process_sees(
    devices: tuple[ProbedDevice, ...], environ: dict[str, str], expected: list[str]
) -> None:
    """Indices in CUDA's order, beginnings of uuids, instances; the first entry that means nothing ends the list."""
    assert [one.uuid for one in visible(devices, environ)] == expected


AMD_STATIC = [
    {
        "gpu": 0,
        "asic": {
            "market_name": "AMD Instinct MI300X",
            "num_compute_units": 304,
            "target_graphics_version": "gfx942",
        },
        "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
    }
]
AMD_METRIC = [
    {
        "gpu": 0,
        "mem_usage": {
            "total_vram": {"value": 196592, "unit": "MB"},
            "used_vram": {"value": 1000, "unit": "MB"},
        },
    }
]
AMD_PROCESS = [
    {
        "gpu": 0,
        "process_list": [
            {
                "process_info": {
                    "name": "python3",
                    "pid": 4194305,
                    "memory_usage": {"vram_mem": {"value": 700 * MIB, "unit": "B"}},
                }
            },
            {"process_info": "No running processes detected"},
        ],
    }
]


@pytest.mark.parametrize("wrap", [lambda parts: parts, lambda parts: {"gpu_data": parts}])
def test_amd_smi_s_answers(wrap: Any) -> None:
    """Size, use, architecture and processes, in the shape of ROCm 6 and of ROCm 7."""
    answers = [json.dumps(wrap(part)) for part in (AMD_STATIC, AMD_METRIC, AMD_PROCESS)]
    (found,) = parse_amd_smi(*answers)

    assert (found.name, found.architecture) == ("AMD Instinct MI300X", "gfx942")
    assert (found.total_bytes, found.free_bytes) == (196592 * MIB, 195592 * MIB)
    assert found.compute_capability is None
    assert [(one.pid, one.held_bytes) for one in found.processes] == [(4194305, 700 * MIB)]


def test_rocm_smi_s_answer() -> None:
    """Sizes in bytes as text, behind a warning; the only device is where the processes are."""
    card = {
        "Card Series": "AMD Instinct MI210",
        "GFX Version": "gfx90a",
        "Unique ID": "0x1A2B",
        "VRAM Total Memory (B)": str(64 * GIB),
        "VRAM Total Used Memory (B)": str(4 * GIB),
    }
    pids = {"system": {"PID4194305": "python3, 1, 4294967296, 0, unknown"}}
    (found,) = parse_rocm_smi(f"WARNING: low power\n{json.dumps({'card0': card})}", json.dumps(pids))

    assert (found.uuid, found.architecture) == ("GPU-1a2b", "gfx90a")
    assert found.free_bytes == 60 * GIB
    assert found.processes[0].held_bytes == 4 * GIB


@pytest.mark.parametrize("text", ["", "not JSON", "{", "[1]", '[{"gpu": 0}]', '{"gpu_data": 3}', "[" * 9999])
def test_answers_that_tell_nothing(text: str) -> None:
    """Broken answers are no devices, and no error."""
    assert parse_amd_smi(text, text, text) == ()
    assert parse_rocm_smi(text, text) == ()


class _DriverError(Exception):
    """What a library without its driver raises."""


def amdsmi_with_one_device() -> types.ModuleType:
    """The functions of amdsmi 7.0.2 that are asked, with the answers that its sources describe."""
    smi: Any = types.ModuleType("amdsmi")
    smi.AmdSmiMemoryType = types.SimpleNamespace(VRAM=0)
    smi.amdsmi_init = smi.amdsmi_shut_down = lambda: None
    smi.amdsmi_get_processor_handles = lambda: ["handle"]
    smi.amdsmi_get_gpu_asic_info = lambda _: {
        "market_name": "AMD Instinct MI300X",
        "target_graphics_version": "gfx942",
    }
    smi.amdsmi_get_gpu_memory_total = lambda _, __: 192 * GIB
    smi.amdsmi_get_gpu_memory_usage = lambda _, __: 2 * GIB
    smi.amdsmi_get_gpu_device_uuid = lambda _: "aaff"
    smi.amdsmi_get_gpu_process_list = lambda _: [
        {"name": "N/A", "pid": 4194305, "mem": 1, "memory_usage": {"vram_mem": GIB}}
    ]
    return smi  # type: ignore[no-any-return]


def test_amd_s_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Total, free, architecture and processes."""
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi_with_one_device())
    found = ask_amdsmi()

    assert found is not None
    assert (found[0].total_bytes, found[0].free_bytes) == (192 * GIB, 190 * GIB)
    assert (found[0].architecture, found[0].processes[0].held_bytes) == ("gfx942", GIB)


@pytest.mark.parametrize(
    "fails", ["amdsmi_init", "amdsmi_get_processor_handles", "amdsmi_get_gpu_memory_total"]
)
def test_amd_s_package_without_its_driver(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """Whatever it raises, there is no traceback: nothing is known."""

    def fail(*_: Any) -> None:
        raise _DriverError

    smi = amdsmi_with_one_device()
    setattr(smi, fails, fail)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)

    assert ask_amdsmi() is None


def nvml_with(**changes: Any) -> types.ModuleType:
    """The functions of NVML that are asked, for one device in MIG mode with two instances of three places."""
    nvml: Any = types.ModuleType("pynvml")
    nvml.NVMLError = _DriverError
    nvml.NVML_DEVICE_MIG_ENABLE = 1
    nvml.nvmlMemory_v2 = 2

    def refuse(*_: Any) -> None:
        raise _DriverError

    def part(_: Any, place: int) -> str:
        if place == 2:
            raise _DriverError
        return f"MIG-{place}"

    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda _: "GPU-0",
        "nvmlDeviceGetMigMode": lambda _: (1, 1),
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 3,
        "nvmlDeviceGetMigDeviceHandleByIndex": part,
        "nvmlDeviceGetName": lambda _: b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": lambda handle: handle,
        "nvmlDeviceGetMemoryInfo": lambda *_, **__: types.SimpleNamespace(
            total=10 * GIB, free=9 * GIB, reserved=GIB // 2
        ),
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            types.SimpleNamespace(pid=4194305, usedGpuMemory=GIB),
            types.SimpleNamespace(pid=4194306, usedGpuMemory=None),
        ],
        "nvmlDeviceGetGraphicsRunningProcesses": refuse,
        "nvmlSystemGetProcessName": refuse,
    }
    for name, answer in {**answers, **changes}.items():
        setattr(nvml, name, answer if answer is not None else refuse)
    return nvml  # type: ignore[no-any-return]


def test_nvml_s_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device in MIG mode is its instances; places without one are passed over."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml_with())
    found = ask_nvml()

    assert found is not None
    assert [(one.uuid, one.parent) for one in found] == [("MIG-0", "GPU-0"), ("MIG-1", "GPU-0")]
    assert found[0].total_bytes == 10 * GIB - GIB // 2
    assert [(one.pid, one.held_bytes) for one in found[0].processes] == [(4194305, GIB), (4194306, None)]


def test_nvml_without_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver refuses to tell a size, the device shares the host's memory."""
    changes = {"nvmlDeviceGetMigMode": None, "nvmlDeviceGetMemoryInfo": None}
    monkeypatch.setitem(sys.modules, "pynvml", nvml_with(**changes))
    found = ask_nvml()

    assert found is not None
    assert found[0].unified
    assert 0 < found[0].free_bytes <= found[0].total_bytes


@pytest.mark.parametrize("fails", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName"])
def test_nvml_without_its_driver(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """No traceback: nothing is known."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml_with(**{fails: None}))

    assert ask_nvml() is None


def test_this_machine_answers_or_has_none() -> None:
    """The probe answers on any machine, without a traceback."""
    for found in probe_devices():
        assert 0 <= found.free_bytes
        assert found.total_bytes > 0


def test_a_node_s_memory() -> None:
    """What can be reclaimed counts as available."""
    text = (
        "Node 0 MemTotal:  1000 kB\nNode 0 MemFree: 100 kB\nNode 0 Active(file): 10 kB\n"
        "Node 0 Inactive(file): 20 kB\nNode 0 SReclaimable: 3 kB\n"
    )
    found = parse_node(text)

    assert found.total_bytes == 1000 * KIB
    assert found.available_bytes == 133 * KIB


def test_this_machine_has_memory() -> None:
    """The probe answers on any machine."""
    found = probe_host()

    assert 0 < found.available_bytes <= found.total_bytes
