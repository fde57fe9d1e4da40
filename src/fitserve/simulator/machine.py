"""A simulated machine: a folder with its description, its programs, and what its processes hold (o: files)."""

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.simulator import smi
from fitserve.simulator.releases import read_data

ROOT = Path(__file__).parent


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of device.

    Attributes:
        name: as the driver says.
        short: as people say.
        board_mib: what ``nvidia-smi`` shows as total.
        total_bytes: what ``cudaMemGetInfo`` reports as total.
        capability: such as (9, 0).
    """

    name: str
    short: str
    board_mib: int
    total_bytes: int
    capability: tuple[int, int]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine.

    Attributes:
        device: all its devices are of this kind.
        count: how many.
        vllm_version: the release that its ``vllm`` is.
        seed: of everything that differs between machines of one kind.
        speed: how many times faster than a real machine its phases pass.
        faults: what goes wrong on it, by name (see ``faults``).
    """

    device: Device
    count: int = 1
    vllm_version: str = "0.19.0"
    seed: int = 0
    speed: float = 200.0
    faults: tuple[str, ...] = ()


@cache
def known_devices() -> tuple[Device, ...]:
    """Every kind of device that can be simulated."""
    return tuple(msgspec.convert(entry, Device) for entry in read_data("devices.json"))


def device_called(name: str) -> Device:
    """The device whose name has all the given words; the shortest of several.

    Raises:
        UsageError: there is none.
    """
    words = name.lower().split()
    found = [
        one
        for one in known_devices()
        if all(word in f"{one.name} {one.short}".lower().split() for word in words)
    ]
    if not words or not found:
        raise UsageError(
            f"no simulated device is called {name!r}",
            hint=f"there are: {', '.join(one.short for one in known_devices())}",
        )
    return min(found, key=lambda one: len(one.short))


def make_machine(folder: Path, machine: Machine) -> Path:
    """Write a machine; gives the folder of its programs, for ``PATH``."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (folder / "holders").mkdir(exist_ok=True)
    (folder / "machine.json").write_bytes(msgspec.json.format(msgspec.json.encode(machine)))
    python, place = sys.executable, folder.resolve()
    engine = f'exec "{python}" -m fitserve.simulator.program "{place}"'
    _write_program(programs / "vllm", f'{engine} vllm "$@"')
    _write_program(programs / "nvidia-smi", f'exec "{python}" -S -E -I "{ROOT / "smi.py"}" "{place}" "$@"')
    server = 'if [ "$1" = -m ] && [ "$2" = vllm.entrypoints.openai.api_server ]; then shift 2'
    _write_program(programs / "python", f'{server}\n{engine} module "$@"\nfi\nexec "{python}" "$@"')
    _write_program(programs / "python3", f'exec "{programs.resolve() / "python"}" "$@"')
    return programs


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def read_machine(folder: Path) -> Machine:
    """The machine of a folder."""
    return msgspec.json.decode((folder / "machine.json").read_bytes(), type=Machine)


def visible(machine: Machine, environ: Mapping[str, str]) -> list[int]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order; an unknown one ends the list, as CUDA has it."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(machine.count))
    found: list[int] = []
    for name in named.split(","):
        if not name.strip().isdecimal() or int(name) >= machine.count:
            break
        found.append(int(name))
    return found


def free_bytes(folder: Path, machine: Machine, index: int) -> int:
    """What is free of a device now."""
    return max(machine.device.total_bytes - smi.held_bytes(str(folder), index), 0)


def hold(folder: Path, devices: Mapping[int, int], *, name: str, pid: int | None = None) -> None:
    """Let a process hold bytes of devices, in place of what it held; it lets go when it ends."""
    pid = os.getpid() if pid is None else pid
    entry: dict[str, Any] = {
        "pid": pid,
        "started": smi.started_ticks(pid),
        "name": name,
        "devices": {str(index): size for index, size in devices.items()},
    }
    path = folder / "holders" / f"{pid}.json"
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(entry), encoding="utf-8")
    draft.replace(path)
