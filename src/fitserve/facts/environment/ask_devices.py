"""Run as a program: prints this machine's devices and what their driver says of itself, as JSON.

A process of its own, because a driver that hangs cannot be given a time limit from within.
"""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from fitserve.facts.machine import probe_devices
from fitserve.facts.probed import ProbedDevice

_SMI_SECONDS = 20.0
_FIELDS = "uuid,driver_version,ecc.mode.current"
_CUDA = re.compile(r"CUDA(?: UMD)? Version\s*:\s*(\d+\.\d+)")
_AMD_DRIVER = Path("/sys/module/amdgpu/version")
_ROCM = Path("/opt/rocm/.info/version")


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver says of itself.

    Attributes:
        version: its version; empty where it does not tell.
        runtime: the newest CUDA or ROCm that it runs, such as ``12.8``; empty where it does not tell.
        ecc: whether memory errors are corrected, by the device's uuid.
    """

    version: str = ""
    runtime: str = ""
    ecc: dict[str, bool] = {}


class DeviceReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the program prints."""

    devices: tuple[ProbedDevice, ...] = ()
    driver: DriverFacts = DriverFacts()


def driver_facts(devices: tuple[ProbedDevice, ...]) -> DriverFacts:
    """Ask whichever library or program has told of the devices."""
    source = devices[0].source if devices else ""
    if source == "NVML":
        return _nvml()
    if source == "nvidia-smi":
        return parse_smi_driver(_smi(f"--query-gpu={_FIELDS}", "--format=csv,noheader"), _smi())
    return (
        DriverFacts(version=_first_line(_AMD_DRIVER), runtime=_first_line(_ROCM))
        if devices
        else DriverFacts()
    )


def parse_smi_driver(table: str, summary: str) -> DriverFacts:
    """The answers of ``nvidia-smi --query-gpu`` and of ``nvidia-smi`` alone."""
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line.count(",") == 2]
    runtime = _CUDA.search(summary)
    return DriverFacts(
        version=rows[0][1] if rows else "",
        runtime=runtime[1] if runtime else "",
        ecc={uuid: ecc == "Enabled" for uuid, _, ecc in rows if ecc in ("Enabled", "Disabled")},
    )


def _nvml() -> DriverFacts:
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    try:
        number = nvml.nvmlSystemGetCudaDriverVersion_v2()
        ecc: dict[str, bool] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            try:
                ecc[_text(nvml.nvmlDeviceGetUUID(handle))] = bool(nvml.nvmlDeviceGetEccMode(handle)[0])
            except nvml.NVMLError:
                continue
        version = _text(nvml.nvmlSystemGetDriverVersion())
        return DriverFacts(version=version, runtime=f"{number // 1000}.{number % 1000 // 10}", ecc=ecc)
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _smi(*arguments: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_SMI_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


def main() -> None:
    """Ask and print."""
    devices = probe_devices()
    reply = DeviceReply(devices=devices, driver=driver_facts(devices))
    sys.stdout.write(msgspec.json.encode(reply).decode())


if __name__ == "__main__":
    main()
