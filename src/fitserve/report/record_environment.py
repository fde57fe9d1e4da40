"""What a record keeps of the machine that it was made on (o: the drivers, the installed vLLM)."""

import platform
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fitserve.facts.environment.environment import probe
from fitserve.units import Unknown, to_builtins

MACHINE = "machine"
"""The key under which a record's environment has all of it; its other keys are a few words for every reading."""

PROBE_SECONDS = 2.0
"""A run must not wait long for a driver that does not answer."""


def recorded_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The machine in a few words, and all of it as ``fitserve env`` tells it.

    The vLLM that is installed here is part of the whole; which one a start was made with, its log says.
    """
    found = probe(environ, seconds=PROBE_SECONDS)
    words: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    if not isinstance(found.devices, Unknown) and found.devices.gpus:
        names = dict.fromkeys(gpu.name for gpu in found.devices.gpus)
        words |= {"gpu": ", ".join(names), "gpus": len(found.devices.gpus), "driver": found.devices.driver}
    return {**words, MACHINE: to_builtins(found)}


def asked_meanwhile(environ: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    """Ask while something else goes on; what is returned gives the answer, and waits for it where it is not there yet."""
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(recorded_environment(environ)), daemon=True)
    thread.start()

    def answer() -> dict[str, Any]:
        thread.join()
        return answers[0] if answers else {}

    return answer
