"""What the simulated devices hold, and the program ``nvidia-smi`` of a simulated machine. Standard library alone: it starts at once.

Usage as a program: ``python -S -E -I smi.py MACHINE_FOLDER [nvidia-smi's arguments]``.
"""

# ruff: noqa: PTH112, PTH118, PTH123, PTH208 -- pathlib would take longer to import than everything else here

import json
import os
import sys
from typing import Any

MIB = 1 << 20
DRIVER = "570.86.15"
_ROWS = ("--query-compute-apps", "--query-gpu")


def started_ticks(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None where it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def read_holders(folder: str) -> list[dict[str, Any]]:
    """What each living process holds: ``pid``, ``name``, ``devices`` (index as text: bytes)."""
    found = []
    place = os.path.join(folder, "holders")
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    for name in (name for name in names if name.endswith(".json")):
        try:
            with open(os.path.join(place, name), encoding="utf-8") as file:
                holder = json.load(file)
        except (OSError, ValueError):
            continue
        if started_ticks(holder["pid"]) == holder["started"]:
            found.append(holder)
    return found


def held_bytes(folder: str, index: int) -> int:
    """What all living processes together hold of a device."""
    return sum(int(holder["devices"].get(str(index), 0)) for holder in read_holders(folder))


def describe_device(folder: str, machine: dict[str, Any], index: int) -> dict[str, str]:
    """The fields of ``--query-gpu`` for one device, without units."""
    device = machine["device"]
    reserved = device["board_mib"] - device["total_bytes"] // MIB
    used = -(-held_bytes(folder, index) // MIB)
    return {
        "index": str(index),
        "uuid": uuid_of(machine, index),
        "name": device["name"],
        "memory.total": str(device["board_mib"]),
        "memory.reserved": str(reserved),
        "memory.used": str(used),
        "memory.free": str(device["board_mib"] - reserved - used),
        "compute_cap": ".".join(map(str, device["capability"])),
        "driver_version": DRIVER,
        "count": str(machine["count"]),
        "utilization.gpu": "0",
        "mig.mode.current": "Disabled" if device["capability"][0] >= 8 else "[N/A]",
    }


def uuid_of(machine: dict[str, Any], index: int) -> str:
    """A device's identity."""
    return f"GPU-{machine['seed'] & 0xFFFFFFFF:08x}-0000-4000-8000-{index:012x}"


def answer_query(fields: list[str], rows: list[dict[str, str]], options: str) -> str:
    """Rows as ``--format`` asks for them."""
    lines = [] if "noheader" in options else [", ".join(fields)]
    for row in rows:
        lines.append(", ".join(_value(row, field, "nounits" not in options) for field in fields))
    return "\n".join(lines)


def _value(row: dict[str, str], field: str, units: bool) -> str:
    text = row.get(field, "[N/A]")
    return f"{text} MiB" if units and "memory" in field and text.isdecimal() else text


def show_table(devices: list[dict[str, str]], apps: list[dict[str, str]]) -> str:
    """The plain table."""
    edge = "+" + "-" * 89 + "+"
    lines = [edge, f"| NVIDIA-SMI {DRIVER}    Driver Version: {DRIVER}    CUDA Version: 12.8 |", edge]
    for one in devices:
        lines.append(
            f"|  {one['index']:>2}  {one['name']:<40} {one['memory.used']:>7}MiB / {one['memory.total']:>7}MiB |"
        )
    lines += [edge, "| Processes: GPU  PID  Type  Process name  GPU Memory |"]
    for app in apps:
        lines.append(
            f"|  {app['index']:>2}  {app['pid']:>8}  C  {app['process_name']:<40} {app['used_memory']:>7}MiB |"
        )
    return "\n".join([*lines, edge])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main(arguments: list[str]) -> int:
    """Answer as ``nvidia-smi`` does."""
    folder, *words = arguments
    with open(os.path.join(folder, "machine.json"), encoding="utf-8") as file:
        machine = json.load(file)
    devices = [describe_device(folder, machine, index) for index in range(machine["count"])]
    apps = [
        {
            "index": index,
            "gpu_uuid": uuid_of(machine, int(index)),
            "pid": str(holder["pid"]),
            "process_name": holder["name"],
            "name": holder["name"],
            "used_memory": str(-(-size // MIB)),
            "used_gpu_memory": str(-(-size // MIB)),
        }
        for holder in read_holders(folder)
        for index, size in holder["devices"].items()
    ]
    options = ",".join(word.partition("=")[2] for word in words if word.startswith("--format"))
    for word in words:
        name, _, fields = word.partition("=")
        if name in _ROWS:
            rows = devices if name == "--query-gpu" else apps
            _say(answer_query([field.strip() for field in fields.split(",")], rows, options))
            return 0
    if words and words[0] in ("-L", "--list-gpus"):
        for one in devices:
            _say(f"GPU {one['index']}: {one['name']} (UUID: {one['uuid']})")
        return 0
    _say(show_table(devices, apps))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
