"""Whether the devices are free again before the next start (o: the driver, the clock)."""

import time
from collections.abc import Callable

import msgspec

from fitserve.facts.command import Launch
from fitserve.memory.history import default_utilization
from fitserve.trial.devices import DRIVER_SECONDS, Held, Probe, within
from fitserve.trial.identity import name_of
from fitserve.trial.memory import NOTICED_BYTES
from fitserve.units import gib

WAIT_SECONDS = 30.0
"""A driver takes back what a killed process held within some seconds."""

_EVERY_SECONDS = 0.5


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A device that holds more than before the first trial.

    Attributes:
        device: its UUID or number.
        total_bytes: all of it.
        free_bytes: what is free now.
        more_bytes: how much more is used than before.
        holders: who holds memory there, in words.
    """

    device: str
    total_bytes: int
    free_bytes: int
    more_bytes: int
    holders: list[str]

    @property
    def words(self) -> str:
        """The device and its holders in one sentence."""
        who = ", ".join(self.holders) or "nobody that the driver tells"
        return f"device {self.device} holds {gib(self.more_bytes)} more than before the first trial: {who}"


class Vacancy:
    """What the devices held before the first trial, and whether they do again.

    Args:
        probe: how they are asked; None where there is none.
    """

    def __init__(self, probe: Probe | None) -> None:
        self._probe = probe
        self._before = {held.device: held.used_bytes for held in self._ask()}

    def wait(self, seconds: float, say: Callable[[str], None]) -> list[Taken]:
        """Wait until the devices are free again, at most so long; those that are not.

        Args:
            seconds: how long.
            say: told once when it takes time.
        """
        deadline = time.monotonic() + seconds
        has_said = False
        while taken := self._taken():
            if time.monotonic() >= deadline:
                return taken
            if not has_said:
                say(f"waiting for memory: {taken[0].words}")
                has_said = True
            time.sleep(_EVERY_SECONDS)
        return []

    def _taken(self) -> list[Taken]:
        return [
            _taken(held, more)
            for held in self._ask()
            if (more := held.used_bytes - self._before.get(held.device, held.used_bytes)) >= NOTICED_BYTES
        ]

    def _ask(self) -> list[Held]:
        return [] if self._probe is None else list(within(DRIVER_SECONDS, self._probe.ask) or ())


def blocked(launch: Launch, taken: list[Taken], version: str | None) -> Taken | None:
    """The device on which the next start would find too little; None where all have enough, or that is not known.

    Source: vLLM 0.32.0 ``v1/worker/utils.py`` ``request_memory``: ``gpu_memory_utilization`` of the total must be free.
    """
    share = launch.value("gpu_memory_utilization")
    if not isinstance(share, int | float):
        share = default_utilization(version or "")
    return next((each for each in taken if each.free_bytes < share * each.total_bytes), None)


def _taken(held: Held, more_bytes: int) -> Taken:
    by_size = sorted((held.by_pid or {}).items(), key=lambda item: -item[1])
    return Taken(
        device=held.device,
        total_bytes=held.total_bytes,
        free_bytes=held.total_bytes - held.used_bytes,
        more_bytes=more_bytes,
        holders=[f"process {name_of(pid)} with {gib(size)}" for pid, size in by_size],
    )
