"""What a container or a cgroup leaves of the machine: memory and processors, versions 1 and 2.

Source: the kernel's "Control Group v2" (``memory.max``, ``cpu.max``: a limit of any ancestor counts) and cgroup v1's ``memory.limit_in_bytes``,
``cpu.cfs_quota_us``, ``cpu.cfs_period_us``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

_NO_LIMIT_BYTES = 1 << 60
"""cgroup v1 writes the largest page-aligned number where there is no limit."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """Where this process runs.

    Attributes:
        runtime: ``docker``, ``podman``, ``kubernetes``, ``lxc``, ``slurm``, another name, or empty outside of containers.
        cgroup_version: 1, 2, or 0 where there is none.
        memory_limit_bytes: the smallest limit on the way up; None where there is none.
        memory_used_bytes: what the group with that limit uses now.
        cpu_limit: processors' worth of time; None where there is no limit.
    """

    runtime: str
    cgroup_version: int
    memory_limit_bytes: int | None
    memory_used_bytes: int | None
    cpu_limit: float | None


def probe(environ: Mapping[str, str], root: Path = Path("/")) -> Container:
    """Read the limits of this process.

    Args:
        environ: its variables.
        root: where the file system begins.
    """
    groups = _groups(root)
    base = root / "sys/fs/cgroup"
    version = 2 if (base / "cgroup.controllers").exists() else 1 if (base / "memory").exists() else 0
    memory: list[tuple[int, int | None]] = []
    cpus: list[float] = []
    for folder in _folders(base, groups, "memory", version):
        limit = _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if limit is not None and limit < _NO_LIMIT_BYTES:
            used = _number(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
            memory.append((limit, used))
    for folder in _folders(base, groups, "cpu", version):
        share = _cpu_v2(folder) if version == 2 else _cpu_v1(folder)
        if share is not None:
            cpus.append(share)
    limit, used = min(memory, default=(None, None), key=lambda pair: pair[0])
    return Container(
        runtime=_runtime(environ, root, groups),
        cgroup_version=version,
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        cpu_limit=min(cpus, default=None),
    )


def _groups(root: Path) -> dict[str, str]:
    """The path of this process's group by controller; that of version 2 has no name."""
    found: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        found |= dict.fromkeys(names.split(","), path)
    return found


def _folders(base: Path, groups: dict[str, str], controller: str, version: int) -> Iterator[Path]:
    """The group's folder and those above it. In a container the path is often the host's: then only the top is there."""
    top = base if version == 2 else base / controller
    path = PurePosixPath(groups.get("" if version == 2 else controller, "/").lstrip("/") or ".")
    for part in (path, *path.parents):
        if ".." not in part.parts:
            yield top / part


def _cpu_v2(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.strip().isdecimal() else None


def _cpu_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _runtime(environ: Mapping[str, str], root: Path, groups: dict[str, str]) -> str:
    paths = " ".join(groups.values())
    if "KUBERNETES_SERVICE_HOST" in environ or "kubepods" in paths:
        return "kubernetes"
    if (root / ".dockerenv").exists() or "/docker" in paths:
        return "docker"
    if (root / "run/.containerenv").exists() or "libpod" in paths:
        return "podman"
    if "SLURM_JOB_ID" in environ:
        return "slurm"
    return environ.get("container", "lxc" if "/lxc" in paths else "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
