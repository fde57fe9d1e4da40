"""NVIDIA's devices, from NVML, or from ``nvidia-smi`` where its binding or library is not there.

NVML counts what the driver keeps; ``cudaMemGetInfo``, by which vLLM reckons, does not: its total is NVML's less the reserved
memory. Where NVML does not tell what is reserved, the catalogue's total counts. A device in MIG mode stands for nothing itself: its
instances do. Of a device that shares the host's memory NVML tells no size: the host's memory counts.

Source: ``nvmlDeviceGetMemoryInfo_v2`` of NVML (driver 510 and later), ``nvidia-smi --help-query-gpu``, ``--help-query-compute-apps``.
"""

import importlib
import re
import shutil
import time
from typing import Any

from msgspec.structs import replace

from fitserve.facts.environment.bounded import ask_program
from fitserve.facts.probed import (
    Holder,
    ProbedDevice,
    is_unified,
    is_wsl,
    shared_memory,
    usable_bytes,
    with_owner,
)
from fitserve.units import MIB

_SMI_SECONDS = 20.0
_FIELDS = "uuid,name,memory.total,memory.reserved,memory.free,compute_cap,mig.mode.current"
_OLD_FIELDS = "uuid,name,memory.total,memory.free"
_APP_FIELDS = "gpu_uuid,pid,process_name,used_memory"
_AFTER_NAME = 5
_MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")
_GPU_LINE = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_PROFILE = re.compile(r"\.(\d+)gb")
_GB = 10**9


def ask_nvml() -> tuple[ProbedDevice, ...] | None:
    """What NVML says; None where its binding or the driver is not there."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 -- a foreign binding: whatever it raises, the next one is asked
        return None
    try:
        found: list[ProbedDevice] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            found += _instances(nvml, handle, index) or [_describe(nvml, handle, index)]
        return tuple(found)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _instances(nvml: Any, handle: Any, index: int) -> list[ProbedDevice]:
    """The parts of a device in MIG mode; empty for a whole one."""
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except (AttributeError, nvml.NVMLError):
        return []
    found = []
    for place in range(count):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue
        found.append(_describe(nvml, part, index, parent=handle))
    return found


def _describe(nvml: Any, handle: Any, index: int, parent: Any = None) -> ProbedDevice:
    name = _text(nvml.nvmlDeviceGetName(handle))
    total, free, unified = _memory(nvml, handle, name, is_part=parent is not None)
    try:
        capability = nvml.nvmlDeviceGetCudaComputeCapability(handle if parent is None else parent)
    except nvml.NVMLError:
        capability = None
    return ProbedDevice(
        index=index,
        name=name,
        total_bytes=total,
        free_bytes=free,
        compute_capability=tuple(capability) if capability else None,
        source="NVML",
        uuid=_uuid(nvml, handle),
        parent=_uuid(nvml, parent) if parent is not None else "",
        unified=unified,
        processes=_holders(nvml, handle),
    )


def _memory(nvml: Any, handle: Any, name: str, *, is_part: bool) -> tuple[int, int, bool]:
    """Total and free bytes, and whether they are the host's."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        reserved = int(memory.reserved)
    except (AttributeError, TypeError, nvml.NVMLError):
        reserved = 0
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return (*shared_memory(), True)
    if not int(memory.total) or is_unified(name):
        return (*shared_memory(), True)
    if is_part:
        return int(memory.total) - reserved, int(memory.free), False
    return usable_bytes(name, int(memory.total), reserved, wsl=is_wsl()), int(memory.free), False


def _holders(nvml: Any, handle: Any) -> tuple[Holder, ...]:
    """Who computes or draws on a device; nothing where the driver does not tell."""
    found: dict[int, Holder] = {}
    for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        try:
            processes = ask(handle)
        except (AttributeError, nvml.NVMLError):
            continue
        for one in processes:
            try:
                name = _text(nvml.nvmlSystemGetProcessName(one.pid))
            except (UnicodeDecodeError, nvml.NVMLError):
                name = ""
            held = None if one.usedGpuMemory is None else int(one.usedGpuMemory)
            found[int(one.pid)] = with_owner(int(one.pid), name, held)
    return tuple(found.values())


def _uuid(nvml: Any, handle: Any) -> str:
    try:
        return _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError:
        return ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def ask_smi() -> tuple[ProbedDevice, ...]:
    """What ``nvidia-smi`` says; empty where it is not there or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    text = _run(program, f"--query-gpu={_FIELDS}")
    if text is None:
        # Drivers before 510 know neither the reserve nor the compute capability.
        text = _padded(_run(program, f"--query-gpu={_OLD_FIELDS}"))
    if text is None:
        return ()
    apps = _run(program, f"--query-compute-apps={_APP_FIELDS}") or ""
    parts = _run(program, "-L", with_format=False) if "Enabled" in text else ""
    return parse_smi(text, apps=apps, parts=parts or "", host=shared_memory(), wsl=is_wsl())


_silent: set[str] = set()
"""Programs that have not answered in time; a driver that hangs is not waited for again."""


def _run(program: str, *arguments: str, with_format: bool = True) -> str | None:
    if program in _silent:
        return None
    shape = ["--format=csv,noheader,nounits"] if with_format else []
    begun = time.monotonic()
    answer = ask_program([program, *arguments, *shape], _SMI_SECONDS, alone=True)
    if isinstance(answer, str):
        return answer
    if time.monotonic() - begun >= _SMI_SECONDS:
        _silent.add(program)
    return None


def _padded(text: str | None) -> str | None:
    """The answer of an old driver, with what it does not know."""
    if text is None:
        return None
    lines = []
    for line in text.splitlines():
        begin, _, free = line.rpartition(",")
        lines.append(f"{begin}, [N/A],{free}, [N/A], [N/A]")
    return "\n".join(lines)


def parse_smi(
    text: str, *, apps: str = "", parts: str = "", host: tuple[int, int] | None = None, wsl: bool = False
) -> tuple[ProbedDevice, ...]:
    """The devices in the answer of ``nvidia-smi``, one line each; lines of another shape are left out.

    Args:
        text: of ``--query-gpu`` with uuid, name, total, reserved and free memory, compute capability, MIG mode.
        apps: of ``--query-compute-apps`` with the device's uuid, pid, name, memory.
        parts: of ``-L``, where devices may be in MIG mode.
        host: total and free bytes of the host's memory, for devices that share it.
        wsl: the machine runs under WSL.
    """
    holders, instances = parse_apps(apps), parse_parts(parts)
    found: list[ProbedDevice] = []
    for index, line in enumerate(text.splitlines()):
        uuid, _, rest = line.partition(",")
        fields = [uuid.strip(), *(field.strip() for field in rest.rsplit(",", _AFTER_NAME))]
        if len(fields) != _AFTER_NAME + 2:
            continue
        device = _smi_device(index, fields, host, wsl=wsl)
        if device is None:
            continue
        own = instances.get(device.uuid, ())
        found += [_smi_part(device, *part, holders.get(part[1], ())) for part in own] or [
            replace(device, processes=holders.get(device.uuid, ()))
        ]
    return tuple(found)


def _smi_device(
    index: int, fields: list[str], host: tuple[int, int] | None, *, wsl: bool
) -> ProbedDevice | None:
    uuid, name, total, reserved, free, capability, _mig = fields
    major, _, minor = capability.partition(".")
    is_number = major.isdecimal() and minor.isdecimal()
    unified = host is not None and is_unified(name)
    if unified and host is not None:
        sizes = host
    elif total.isdecimal() and free.isdecimal():
        kept = int(reserved) * MIB if reserved.isdecimal() else 0
        sizes = usable_bytes(name, int(total) * MIB, kept, wsl=wsl), int(free) * MIB
    else:
        return None
    return ProbedDevice(
        index=index,
        name=name,
        total_bytes=sizes[0],
        free_bytes=sizes[1],
        compute_capability=(int(major), int(minor)) if is_number else None,
        source="nvidia-smi",
        uuid=uuid,
        unified=unified,
    )


def _smi_part(device: ProbedDevice, profile: str, uuid: str, holders: tuple[Holder, ...]) -> ProbedDevice:
    """A part of a device; its size is its profile's, which is rounded, less what its processes hold."""
    size = _PROFILE.search(profile)
    total = min(device.total_bytes, int(size[1]) * _GB) if size else device.total_bytes
    held = sum(one.held_bytes or 0 for one in holders)
    return replace(
        device,
        name=f"{device.name} MIG {profile}",
        uuid=uuid,
        parent=device.uuid,
        total_bytes=total,
        free_bytes=max(0, total - held),
        processes=holders,
    )


def parse_apps(text: str) -> dict[str, tuple[Holder, ...]]:
    """Who holds memory, by the device's uuid; a name may hold commas, a size may not be told."""
    found: dict[str, list[Holder]] = {}
    for line in text.splitlines():
        uuid, _, rest = line.partition(",")
        pid, _, rest = rest.partition(",")
        name, _, size = rest.rpartition(",")
        if not pid.strip().isdecimal():
            continue
        held = int(size) * MIB if size.strip().isdecimal() else None
        name = "" if name.strip().startswith("[") else name.strip()
        found.setdefault(uuid.strip(), []).append(with_owner(int(pid), name, held))
    return {uuid: tuple(holders) for uuid, holders in found.items()}


def parse_parts(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Profile and uuid of every part in the answer of ``nvidia-smi -L``, by the device's uuid."""
    found: dict[str, list[tuple[str, str]]] = {}
    device = ""
    for line in text.splitlines():
        whole, part = _GPU_LINE.match(line), _MIG_LINE.match(line)
        if whole:
            device = whole[1]
        elif part:
            found.setdefault(device, []).append((part[1], part[2]))
    return {uuid: tuple(parts) for uuid, parts in found.items()}
