"""The host as a process here sees it: memory, processors, NUMA nodes, shared memory, kernel."""

import os
import platform
import resource
from pathlib import Path

import msgspec

from fitserve.facts.probed import is_wsl

_KIB = 1 << 10


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """One memory node: its number, its memory, its processors as the kernel lists them."""

    node: int
    total_bytes: int
    cpus: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host.

    Attributes:
        memory_total_bytes: RAM.
        memory_available_bytes: what can be taken now.
        swap_total_bytes: swap.
        cpus: processors that this process may run on.
        numa: memory nodes.
        shm_total_bytes: the size of ``/dev/shm``; None where there is none.
        shm_free_bytes: what is free of it.
        locked_memory_limit_bytes: how much memory may be locked; None is no limit.
        open_files_limit: files that may be open at once; None is no limit.
        system: such as ``Linux 6.8.0``.
        wsl: it is the Windows Subsystem for Linux.
    """

    memory_total_bytes: int
    memory_available_bytes: int
    swap_total_bytes: int
    cpus: int
    numa: tuple[NumaNode, ...]
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    locked_memory_limit_bytes: int | None
    open_files_limit: int | None
    system: str
    wsl: bool


def probe(root: Path = Path("/")) -> Host:
    """Ask the kernel.

    Args:
        root: where the file system begins.
    """
    memory = _meminfo(root / "proc/meminfo")
    shm = _sizes(root / "dev/shm")
    return Host(
        memory_total_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", memory.get("MemFree", 0)),
        swap_total_bytes=memory.get("SwapTotal", 0),
        cpus=len(os.sched_getaffinity(0)),
        numa=_nodes(root / "sys/devices/system/node"),
        shm_total_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        locked_memory_limit_bytes=_limit(resource.RLIMIT_MEMLOCK),
        open_files_limit=_limit(resource.RLIMIT_NOFILE),
        system=f"{platform.system()} {platform.release()}",
        wsl=is_wsl(),
    )


def _meminfo(path: Path) -> dict[str, int]:
    """The lines ``MemTotal:  97421888 kB``, also with ``Node 0`` before them."""
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.rpartition("Node ")[2].partition(":")
        number = rest.split()[0] if rest.split() else ""
        if number.isdecimal():
            found[name.split()[-1]] = int(number) * _KIB
    return found


def _nodes(folder: Path) -> tuple[NumaNode, ...]:
    numbers = sorted(int(path.name[4:]) for path in folder.glob("node[0-9]*") if path.name[4:].isdecimal())
    return tuple(
        NumaNode(
            node=number,
            total_bytes=_meminfo(folder / f"node{number}/meminfo").get("MemTotal", 0),
            cpus=_text(folder / f"node{number}/cpulist"),
        )
        for number in numbers
    )


def _sizes(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
