"""The host's memory, as vLLM's CPU backend counts it: one NUMA node's, at most what the container may use.

Source: ``get_memory_node_info`` in ``utils/cpu_resource_utils.py`` of vLLM 0.32.
"""

from pathlib import Path

import msgspec

from fitserve.units import KIB

_NODE = Path("/sys/devices/system/node/node0/meminfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_USED = Path("/sys/fs/cgroup/memory.current")
_AVAILABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a worker's node.

    Attributes:
        total_bytes: all of it.
        available_bytes: what can be taken now.
    """

    total_bytes: int
    available_bytes: int


def probe_host() -> HostMemory:
    """This machine's first node; the whole machine where nodes are not told apart."""
    try:
        found = parse_node(_NODE.read_text(encoding="utf-8"))
    except OSError:
        import psutil

        memory = psutil.virtual_memory()
        found = HostMemory(total_bytes=memory.total, available_bytes=memory.available)
    limit, used = _number(_LIMIT), _number(_USED)
    if limit is None or limit >= found.total_bytes:
        return found
    return HostMemory(
        total_bytes=limit, available_bytes=max(0, min(found.available_bytes, limit - (used or 0)))
    )


def parse_node(text: str) -> HostMemory:
    """The lines ``Node 0 MemTotal: 97421888 kB`` of a node's ``meminfo``."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) >= 4 and parts[3].isdecimal():
            values[parts[2].rstrip(":")] = int(parts[3]) * KIB
    return HostMemory(
        total_bytes=values.get("MemTotal", 0), available_bytes=sum(values.get(name, 0) for name in _AVAILABLE)
    )


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
