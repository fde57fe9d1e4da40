"""Limits, memory and nodes from the files of a kernel, laid out as kernels lay them out."""

from pathlib import Path

import pytest

from fitserve.facts.environment import cgroup, host
from fitserve.units import GIB, KIB


def lay(root: Path, files: dict[str, str]) -> Path:
    """Write the files below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = {
    "proc/self/cgroup": "0::/system.slice/docker-4f1a.scope\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
}
V1 = {
    "proc/self/cgroup": "9:memory:/docker/4f1a\n3:cpu,cpuacct:/docker/4f1a\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}


@pytest.mark.parametrize(
    ("files", "memory", "used", "cpus"),
    [
        (V2, None, None, None),
        ({**V2, "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None, None, None),
        (
            # in a container the path is the host's: the limits are at the top
            {**V2, "sys/fs/cgroup/memory.max": f"{8 * GIB}\n", "sys/fs/cgroup/memory.current": f"{GIB}\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"},
            8 * GIB, GIB, 1.5,
        ),
        (
            # the smallest on the way up counts
            {
                **V2,
                "sys/fs/cgroup/system.slice/docker-4f1a.scope/memory.max": f"{16 * GIB}\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/system.slice/docker-4f1a.scope/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/system.slice/cpu.max": "max 100000\n",
            },
            4 * GIB, None, 4.0,
        ),
        (V1, None, None, None),
        (
            {
                **V1,
                "sys/fs/cgroup/memory/docker/4f1a/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory/docker/4f1a/memory.usage_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/cpu/docker/4f1a/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/docker/4f1a/cpu.cfs_period_us": "100000\n",
            },
            2 * GIB, GIB, 0.5,
        ),
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None, None, None),
        ({}, None, None, None),
    ],
)  # fmt: skip
def test_limits(
    tmp_path: Path, files: dict[str, str], memory: int | None, used: int | None, cpus: float | None
) -> None:
    """Both versions, in containers and outside, with limits and without."""
    found = cgroup.probe({}, lay(tmp_path, files))

    assert (memory, used, cpus) == (found.memory_limit_bytes, found.memory_used_bytes, found.cpu_limit)


@pytest.mark.parametrize(
    ("files", "environ", "runtime"),
    [
        ({}, {}, ""),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/self/cgroup": "0::/kubepods.slice/pod1\n"}, {}, "kubernetes"),
        ({}, {"SLURM_JOB_ID": "7"}, "slurm"),
        ({}, {"container": "oci"}, "oci"),
    ],
)
def test_runtime(tmp_path: Path, files: dict[str, str], environ: dict[str, str], runtime: str) -> None:
    """Who runs the container."""
    assert runtime == cgroup.probe(environ, lay(tmp_path, files)).runtime


def test_host(tmp_path: Path) -> None:
    """Memory and nodes; a machine without a node and without shared memory is no failure."""
    nodes = {
        f"sys/devices/system/node/node{at}/{name}": text
        for at in (0, 1, 10)
        for name, text in (
            ("cpulist", f"{at}-{at + 3}\n"),
            ("meminfo", f"Node {at} MemTotal:  {1000 + at} kB\nNode {at} MemFree: 7 kB\n"),
        )
    }
    files = {
        "proc/meminfo": "MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\nSwapTotal: 500 kB\nHugePages_Total: 0\n"
    }

    found = host.probe(lay(tmp_path, {**files, **nodes, "dev/shm/x": ""}))
    bare = host.probe(tmp_path / "nowhere")

    assert (4000 * KIB, 3000 * KIB, 500 * KIB) == (
        found.memory_total_bytes,
        found.memory_available_bytes,
        found.swap_total_bytes,
    )
    assert [(0, 1000 * KIB, "0-3"), (1, 1001 * KIB, "1-4"), (10, 1010 * KIB, "10-13")] == [
        (node.node, node.total_bytes, node.cpus) for node in found.numa
    ]
    assert found.shm_total_bytes
    assert (0, (), None) == (bare.memory_total_bytes, bare.numa, bare.shm_total_bytes)
