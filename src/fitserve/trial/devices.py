"""The devices that a launch would see, and how they are asked while it runs (o: the driver, the environment)."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol, TypeVar

import msgspec

from fitserve.facts.command import Launch, variable
from fitserve.facts.machine import probe_devices
from fitserve.facts.nvidia import ask_nvml
from fitserve.facts.probed import ProbedDevice
from fitserve.facts.visible import visible

HOST = "host"
"""What stands for the machine where a launch sees no device."""

DRIVER_SECONDS = 10.0
"""How long a driver may take to answer before it counts as one that does not."""

_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_CONTAINER_DEVICES = re.compile(r'"?device=([^"]+)"?$')
_LIBRARY_PACE_SECONDS = 0.2
_PROGRAM_PACE_SECONDS = 2.0
"""A program such as ``nvidia-smi`` takes a process, and part of a second, for each answer."""

Answer = TypeVar("Answer")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a device's memory now.

    Attributes:
        device: its UUID, or its number where the driver tells none.
        total_bytes: all of it.
        used_bytes: everything that is used.
        by_pid: each process and what it holds; None where the driver tells no process of this machine, or not its size.
    """

    device: str
    total_bytes: int
    used_bytes: int
    by_pid: dict[int, int] | None = None


class Probe(Protocol):
    """Asks the visible devices.

    Attributes:
        source: who answers.
        pace_seconds: how long to wait between two questions.
    """

    source: str
    pace_seconds: float

    def ask(self) -> Sequence[Held]:
        """Each visible device as it is now; raises whatever the driver does."""


class DriverProbe:
    """Asks the driver that has answered before.

    Args:
        source: who that was.
        environ: the launch's environment.
    """

    def __init__(self, source: str, environ: Mapping[str, str]) -> None:
        self.source = source
        self.pace_seconds = _LIBRARY_PACE_SECONDS if source in ("NVML", "amdsmi") else _PROGRAM_PACE_SECONDS
        self._environ = environ
        if source == "NVML":
            import pynvml

            # NVML counts how often it was begun: as long as we hold it, each question begins it at no cost.
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlInit()

    def ask(self) -> Sequence[Held]:
        """Each visible device as it is now."""
        found = ask_nvml() if self.source == "NVML" else probe_devices()
        return [_held(device) for device in visible(found or (), self._environ)]


def visible_devices(environ: Mapping[str, str] = os.environ) -> int | None:
    """The number of devices that a process with this environment sees; None without a driver that says it."""
    found = within(DRIVER_SECONDS, probe_devices)
    return len(visible(found, environ)) if found else None


def probe_for(launch: Launch, environ: Mapping[str, str]) -> Probe | None:
    """How the devices that a launch sees are asked; None where it sees none, or the driver does not answer."""
    seen = {name: text for name in _VARIABLES if (text := variable(launch, name, environ)) is not None}
    named = _named_for_container(launch)
    if named is not None and "CUDA_VISIBLE_DEVICES" not in seen:
        seen["CUDA_VISIBLE_DEVICES"] = named
    return _probe(frozenset(seen.items()), os.environ.get("PATH"))


@cache
def _probe(seen: frozenset[tuple[str, str]], _path: str | None) -> Probe | None:
    """The same for the same environment, so that a driver that never answers is waited for once."""
    found = visible(within(DRIVER_SECONDS, probe_devices) or (), dict(seen))
    return DriverProbe(found[0].source, dict(seen)) if found else None


def lock_keys(probe: Probe | None) -> list[str]:
    """What a launch needs for itself alone: its devices by UUID, or the machine."""
    if probe is None:
        return [HOST]
    return [held.device for held in within(DRIVER_SECONDS, probe.ask) or ()] or [HOST]


def within(seconds: float, ask: Callable[[], Answer]) -> Answer | None:
    """An answer of a driver, which may be slow, wrong or never come; None then.

    Args:
        seconds: how long to wait.
        ask: the question.
    """
    answers: list[Answer] = []

    def run() -> None:
        with contextlib.suppress(Exception):  # a foreign driver: whatever it raises is no answer
            answers.append(ask())

    thread = threading.Thread(target=run, name="driver", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


def _held(device: ProbedDevice) -> Held:
    # Inside a container the driver may tell numbers of processes that mean nothing there.
    told = all(one.held_bytes is not None and one.owner is not None for one in device.processes)
    return Held(
        device=device.uuid or str(device.index),
        total_bytes=device.total_bytes,
        used_bytes=max(0, device.total_bytes - device.free_bytes),
        by_pid={one.pid: one.held_bytes or 0 for one in device.processes}
        if told and device.processes
        else None,
    )


def _named_for_container(launch: Launch) -> str | None:
    """The devices that ``docker run --gpus device=...`` names; None where it names none."""
    if launch.container is None:
        return None
    before = (launch.argv if launch.around else launch.words)[: launch.container.image]
    for word, following in zip(before, [*before[1:], ""], strict=False):
        text = following if word == "--gpus" else word.removeprefix("--gpus=")
        if "--gpus" in word and (match := _CONTAINER_DEVICES.match(text)):
            return match[1]
    return None
