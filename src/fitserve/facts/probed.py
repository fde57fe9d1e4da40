"""What a machine's driver says of an accelerator, whoever made it, and who holds its memory."""

from pathlib import Path

import msgspec

from fitserve.facts.devices import find_device
from fitserve.units import MIB

_CATALOGUE_AGREES = 0.02
_KERNEL = Path("/proc/version")


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds memory of a device.

    Attributes:
        pid: its number, as the driver tells it; inside a container it may be the host's.
        name: its program, as far as the driver or the machine tells.
        owner: its user; None where the machine does not tell.
        held_bytes: what it holds; None where the driver does not tell (Windows, WSL, another container).
    """

    pid: int
    name: str
    owner: str | None = None
    held_bytes: int | None = None


class ProbedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator as the driver describes it.

    Attributes:
        index: its number on this machine, in the order of the bus.
        name: as the driver says.
        total_bytes: what ``cudaMemGetInfo`` or ``hipMemGetInfo`` reports as total.
        free_bytes: what is free now.
        compute_capability: such as (9, 0); None where it is no NVIDIA device or the driver does not tell.
        source: who told: ``NVML``, ``nvidia-smi``, ``amdsmi``, ``amd-smi``, ``rocm-smi``.
        uuid: its identity, ``GPU-`` or ``MIG-`` and letters; empty where it is not told.
        parent: the identity of the device that it is a part of (MIG); empty for a whole one.
        architecture: such as ``gfx942``; empty on NVIDIA.
        unified: it shares the host's memory.
        processes: who holds its memory.
    """

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int] | None
    source: str
    uuid: str = ""
    parent: str = ""
    architecture: str = ""
    unified: bool = False
    processes: tuple[Holder, ...] = ()

    @property
    def held_bytes(self) -> int:
        """What its processes hold, as far as that is told."""
        return sum(one.held_bytes or 0 for one in self.processes)


def usable_bytes(name: str, total_bytes: int, reserved_bytes: int, *, wsl: bool = False) -> int:
    """What ``cudaMemGetInfo`` reports as total.

    Args:
        name: the device.
        total_bytes: NVML's total.
        reserved_bytes: what the driver keeps; 0 where it does not tell.
        wsl: under WSL the driver keeps nothing.
    """
    if wsl:
        return total_bytes
    if reserved_bytes:
        return total_bytes - reserved_bytes
    facts = find_device(name)
    if facts is None or abs(facts.board_mib * MIB - total_bytes) > _CATALOGUE_AGREES * total_bytes:
        return total_bytes
    return facts.total_bytes


def is_wsl() -> bool:
    """True under the Windows Subsystem for Linux."""
    try:
        return "microsoft" in _KERNEL.read_text(encoding="utf-8").lower()
    except OSError:
        return False


def is_unified(name: str) -> bool:
    """True where the catalogue says that the device shares the host's memory."""
    facts = find_device(name)
    return facts is not None and facts.unified


def shared_memory() -> tuple[int, int]:
    """Total and free bytes of a device that shares the host's memory, as vLLM counts them there: the host's.

    Source: ``MemorySnapshot.measure`` in ``utils/mem_utils.py`` of vLLM 0.32.
    """
    import psutil

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def with_owner(pid: int, name: str, held_bytes: int | None) -> Holder:
    """A holder with what this machine says of the process, if it is one of its own."""
    import psutil

    try:
        process = psutil.Process(pid)
        owner: str | None = process.username()
        name = name or process.name()
    except (psutil.Error, OSError, ValueError, OverflowError):
        owner = None
    return Holder(pid=pid, name=name or "unknown", owner=owner, held_bytes=held_bytes)
