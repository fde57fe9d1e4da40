"""Pip, run in another environment and read while it runs."""

import os
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fitserve.errors import MachineError

POLL_SECONDS = 0.5

_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON")
_STEP = re.compile(
    r"\s*(?P<verb>Collecting|Processing|Downloading|Using cached|Building wheel for) (?P<what>\S+)(?P<size> \([\d.]+ [kMG]?B\))?"
)
_UNREACHABLE = re.compile(
    r"Retrying \(|Max retries exceeded|Failed to establish a new connection|Name or service not known"
)


class PackageIndexError(MachineError):
    """The package index cannot be reached, or does not have what was asked for."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of progress.

    Attributes:
        phase: what is being done.
        what: to which package; empty where it is to none.
        done: how many packages are done in this phase.
        total: out of how many; None where nobody knows yet.
    """

    phase: str
    what: str = ""
    done: int = 0
    total: int | None = None


Report = Callable[[Step], None]


def clean_environment() -> dict[str, str]:
    """The user's environment without what would send pip or Python into another folder."""
    return {name: value for name, value in os.environ.items() if name not in _MISLEADING}


def run_pip(
    python: Path, arguments: list[str], *, report: Report, count_installed: Callable[[], int], held_fd: int
) -> None:
    """Run pip and report what it does.

    Args:
        python: the Python of the environment to change.
        arguments: pip's command and options.
        report: is told each step.
        count_installed: how many distributions the environment has by now.
        held_fd: the lock's file descriptor. Pip inherits it, so that the lock outlives a killed parent until pip has ended too.

    Raises:
        MachineError: pip failed; carries its last error line.
    """
    command = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=clean_environment(),
        pass_fds=(held_fd,),
    ) as child:
        lines: list[str] = []
        try:
            for step in read_steps(_timed_lines(child, lines), count_installed):
                report(step)
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise pip_error(lines, child.returncode)


def read_steps(lines: Iterator[str | None], count_installed: Callable[[], int]) -> Iterator[Step]:
    """What pip's output means. None among the lines is a moment without output.

    **Source**: the output of pip 23.2 and 26.1 without a terminal.
    """
    collected = 0
    total: int | None = None
    for line in lines:
        if total is not None:
            yield Step(phase="installing packages", done=min(count_installed(), total), total=total)
        elif line is None:
            continue
        elif line.startswith("Installing collected packages: "):
            total = count_installed() + line.count(", ") + 1
        elif match := _STEP.match(line):
            collected += match["verb"] in ("Collecting", "Processing")
            what = match["what"].rpartition("/")[2] + (match["size"] or "")
            yield Step(phase="collecting packages", what=what, done=collected)


def pip_error(lines: list[str], exit_code: int) -> MachineError:
    """Why pip failed, in its own last error line, with the one thing to do."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    last = errors[-1] if errors else (said[-1] if said else "it said nothing")
    if any(_UNREACHABLE.search(line) for line in said):
        return PackageIndexError(
            f"pip cannot reach its package index: {last}",
            hint="check the network, or pip's configuration (pip config list), and call again",
        )
    if "torch" in last and "No matching distribution" in last:
        return PackageIndexError(
            f"pip finds no CPU build of torch: {last}",
            hint="name an index that has it: --extra-index-url URL, or FITSERVE_ENGINE_INDEX=URL",
        )
    if "No matching distribution" in last:
        return PackageIndexError(
            f"pip finds no such package: {last}",
            hint="check the network and pip's configuration (pip config list); this Python may have no build",
        )
    if "No space left" in last:
        return MachineError(
            f"pip has filled the disk: {last}", hint="free space, or name a larger disk: FITSERVE_CACHE_DIR"
        )
    return MachineError(
        f"pip ended with exit code {exit_code}: {last}", hint="call again: finished downloads are kept by pip"
    )


def _timed_lines(child: subprocess.Popen[str], lines: list[str]) -> Iterator[str | None]:
    """Each line as it comes, and None where none comes for a while; every line is kept in ``lines``."""
    arrived: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(child, arrived), daemon=True)
    reader.start()
    while True:
        try:
            line = arrived.get(timeout=POLL_SECONDS)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        lines.append(line)
        yield line


def _pump(child: subprocess.Popen[str], arrived: "queue.Queue[str | None]") -> None:
    if child.stdout:
        for line in child.stdout:
            arrived.put(line)
    arrived.put(None)
