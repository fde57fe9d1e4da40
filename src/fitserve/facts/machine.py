"""The accelerators of this machine: asked from NVML, or from ``nvidia-smi`` where its binding is not installed.

NVML counts what the driver keeps; ``cudaMemGetInfo``, by which vLLM reckons, does not: its total is NVML's less the reserved
memory. Where NVML does not tell what is reserved, the catalogue's total counts.

Source: ``nvmlDeviceGetMemoryInfo_v2`` of NVML (driver 510 and later) and ``nvidia-smi --query-gpu``.
"""

import importlib
import shutil
import subprocess
from typing import Any

import msgspec

from fitserve.facts.devices import find_device
from fitserve.units import MIB

_SMI_SECONDS = 20.0
_QUERY = "name,memory.total,memory.reserved,memory.free,compute_cap"
_FIELDS = 5
_CATALOGUE_AGREES = 0.02


class ProbedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator as the driver describes it.

    Attributes:
        index: its number on this machine.
        name: as the driver says.
        total_bytes: what ``cudaMemGetInfo`` reports as total.
        free_bytes: what is free now.
        compute_capability: such as (9, 0); None where the driver does not tell.
        source: ``NVML`` or ``nvidia-smi``.
    """

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int] | None
    source: str


def probe_devices() -> tuple[ProbedDevice, ...]:
    """Every NVIDIA device of this machine; empty where there is none or no driver answers."""
    found = _ask_nvml()
    return found if found is not None else _ask_smi()


def _ask_nvml() -> tuple[ProbedDevice, ...] | None:
    """What NVML says; None where its binding or the driver is not there."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 -- a foreign binding: whatever it raises, the fallback is asked
        return None
    try:
        return tuple(_describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _describe(nvml: Any, index: int) -> ProbedDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(handle)
    text = name.decode() if isinstance(name, bytes) else str(name)
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        reserved = int(memory.reserved)
    except (AttributeError, TypeError, nvml.NVMLError):
        memory, reserved = nvml.nvmlDeviceGetMemoryInfo(handle), 0
    try:
        capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:
        capability = None
    return ProbedDevice(
        index=index,
        name=text,
        total_bytes=usable_bytes(text, int(memory.total), reserved),
        free_bytes=int(memory.free),
        compute_capability=tuple(capability) if capability else None,
        source="NVML",
    )


def usable_bytes(name: str, total_bytes: int, reserved_bytes: int) -> int:
    """What ``cudaMemGetInfo`` reports as total.

    Args:
        name: the device.
        total_bytes: NVML's total.
        reserved_bytes: what the driver keeps; 0 where it does not tell.
    """
    if reserved_bytes:
        return total_bytes - reserved_bytes
    facts = find_device(name)
    if facts is None or abs(facts.board_mib * MIB - total_bytes) > _CATALOGUE_AGREES * total_bytes:
        return total_bytes
    return facts.total_bytes


def _ask_smi() -> tuple[ProbedDevice, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run(
            [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_smi(answer.stdout)


def parse_smi(text: str) -> tuple[ProbedDevice, ...]:
    """The devices in the answer of ``nvidia-smi``, one line each; lines of another shape are left out."""
    found = []
    for index, line in enumerate(text.splitlines()):
        fields = [field.strip() for field in line.rsplit(",", _FIELDS - 1)]
        if len(fields) != _FIELDS or not fields[1].isdecimal() or not fields[3].isdecimal():
            continue
        reserved = int(fields[2]) if fields[2].isdecimal() else 0
        major, _, minor = fields[4].partition(".")
        is_number = major.isdecimal() and minor.isdecimal()
        found.append(
            ProbedDevice(
                index=index,
                name=fields[0],
                total_bytes=usable_bytes(fields[0], int(fields[1]) * MIB, reserved * MIB),
                free_bytes=int(fields[3]) * MIB,
                compute_capability=(int(major), int(minor)) if is_number else None,
                source="nvidia-smi",
            )
        )
    return tuple(found)
