"""How a process of a release speaks: the shape of its lines, its tracebacks (o: standard output).

Source: ``logging_utils/formatter.py`` and ``utils/system_utils.py`` (``decorate_logs``) of vLLM 0.7.3 to 0.32.0.
"""

import os
import sys
import time
from collections.abc import Sequence

from fitserve.simulator.releases import at_least, nearest, read_data

_PACKAGES = "/usr/local/lib/python3.12/dist-packages"
Frame = tuple[str, int, str, str]


class Voice:
    """One process and its lines.

    Args:
        version: of vLLM.
        process: ``APIServer``, ``EngineCore``, ``Engine`` (V0), or ``Worker`` with its ranks.
    """

    def __init__(self, version: str, process: str) -> None:
        self.version = version
        self.places = read_data("places.json")[nearest(version, read_data("places.json"))]
        self.tag = (
            f"({process_name(version, process)} pid={os.getpid()}) " if has_tag(version, process) else ""
        )

    def log(self, place: str, message: str, level: str = "INFO") -> None:
        """A record of vLLM's logger; further lines of a message carry the same prefix."""
        prefix = (
            f"{self.tag}{level} {time.strftime('%m-%d %H:%M:%S')} [{self.places['lines'].get(place, place)}] "
        )
        self._write("".join(f"{prefix}{line}\n" for line in message.split("\n")))

    def raw(self, text: str) -> None:
        """What is printed without the logger: with the process' tag up to 0.30."""
        tag = (
            ""
            if at_least(self.version, "0.31.0") or (text.startswith("INFO:  ") and not self.tag)
            else self.tag
        )
        self._write("".join(f"{tag}{line}\n" for line in text.split("\n")))

    def exception(self, place: str, head: str, lines: Sequence[str]) -> None:
        """``logger.exception``: the message, then the traceback, each line with the prefix."""
        self.log(place, "\n".join([head, *lines]), "ERROR")

    def frames(self, *names: str) -> list[Frame]:
        """The frames of this release under these names, outermost first."""
        found: list[Frame] = []
        for name in names:
            for path, line, function, text in self.places["frames"].get(name, []):
                found.append((f"{_PACKAGES}/{path}", line, function, text))
        return found

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def process_name(version: str, process: str) -> str:
    """The name of a process in a release."""
    if process == "EngineCore" and not at_least(version, "0.18.0"):
        return "EngineCore_DP0" if at_least(version, "0.10.2") else "EngineCore_0"
    if process.startswith("Worker_TP") and not at_least(version, "0.10.1"):
        return f"VllmWorker rank={process.removeprefix('Worker_TP')}"
    if process.startswith("Worker_TP") and not at_least(version, "0.10.2"):
        return f"VllmWorker {process.removeprefix('Worker_')}"
    return process


def has_tag(version: str, process: str) -> bool:
    """True where lines of that process are tagged."""
    if process == "APIServer":
        return at_least(version, "0.10.1")
    if process == "Engine":
        return False
    return at_least(version, "0.8.3" if process == "EngineCore" else "0.6.5")


def traceback(frames: Sequence[Frame], error: str, *, chained: Sequence[str] = ()) -> list[str]:
    """The lines of a traceback that ends with an error; ``chained`` is the one that it came from."""
    lines = (
        [*chained, "", "The above exception was the direct cause of the following exception:", ""]
        if chained
        else []
    )
    lines.append("Traceback (most recent call last):")
    for path, line, function, text in frames:
        lines += [f'  File "{path}", line {line}, in {function}', f"    {text}"]
    return [*lines, *error.split("\n")]


def gib(size: float) -> str:
    """A size as ``format_gib`` prints it: rounded to two digits."""
    return str(round(size / (1 << 30), 2))
