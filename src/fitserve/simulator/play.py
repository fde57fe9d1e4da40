"""What a start is about, how it will end, and how it is broken off (o: files, processes)."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fitserve.simulator.faults import FAULTS, Fault
from fitserve.simulator.machine import Machine, free_bytes
from fitserve.simulator.models import Model
from fitserve.simulator.refusals import Refusal
from fitserve.simulator.settings import Settings
from fitserve.simulator.smi import read_holders
from fitserve.simulator.start import Start, would_start
from fitserve.simulator.voice import Voice


class Play(msgspec.Struct, kw_only=True):
    """What a start is about.

    Attributes:
        folder: the machine's.
        place: the model as it was given.
        devices: of each rank.
        refusal: what vLLM refuses only in the engine.
    """

    folder: Path
    machine: Machine
    model: Model
    place: str
    settings: Settings
    devices: list[int]
    refusal: Refusal | None = None

    def fault(self, step: str) -> Fault | None:
        """The machine's fault in a step."""
        found = [FAULTS[name] for name in self.machine.faults if name in FAULTS]
        ranks = self.settings.world_size
        return next((one for one in found if one.step == step and (ranks > 1 or not one.needs_ranks)), None)

    def wait(self, seconds: float) -> None:
        """Let a real machine's time pass."""
        time.sleep(seconds / self.machine.speed)


class StartFailed(Exception):  # noqa: N818 -- it ends a start, and is no error of ours
    """The start is over: the error, where it was raised, and in which rank."""

    def __init__(self, error: str, frames: Sequence[str], step: str, *, chained: str = "") -> None:
        super().__init__(error)
        self.error, self.frames, self.step, self.chained = error, tuple(frames), step, chained


def judge(play: Play) -> Start:
    """How this start will end, with what is free now."""
    free = [free_bytes(play.folder, play.machine, device) for device in play.devices]
    return would_start(play.model, play.settings, play.machine.device, free, play.machine.seed)


def foreign_bytes(play: Play) -> int:
    """What others hold of the first rank's device."""
    mine = {"VLLM::EngineCore", "VLLM::Worker"}
    group = os.getpgid(0)
    total = 0
    for holder in read_holders(str(play.folder)):
        try:
            own = holder["name"] in mine and os.getpgid(holder["pid"]) == group
        except ProcessLookupError:
            continue
        if not own:
            total += int(holder["devices"].get(str(play.devices[0]), 0))
    return total


def meet_silent_faults(play: Play, voice: Voice) -> None:
    """Hang, die or print without end, where the machine has such a fault."""
    faults = play.machine.faults
    if "hangs" in faults:
        while True:
            time.sleep(60)
    if "host-memory" in faults:
        os.kill(os.getpid(), signal.SIGKILL)
    if "log-flood" in faults:
        for count in range(200_000):
            voice.log(
                "load",
                f"fused_moe_kernel: no tuned configuration for shape {count}, using the default one",
                "WARNING",
            )
