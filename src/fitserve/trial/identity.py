"""Which process it is, beyond its number: numbers are given out again, a start time on one boot is not (o: /proc).

Source: proc(5): ``/proc/PID/stat`` field 22 (``starttime``), ``/proc/sys/kernel/random/boot_id``.
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fitserve.trial.outcome import ProcessId

MARK = "FITSERVE_TRIAL"
"""The environment variable that every process of a trial inherits: the run's id and the trial's number."""

_START_FIELD = 19
"""``starttime``, counted from the state, which is the first field behind the name."""


def boot() -> str:
    """This machine's name, the id of its boot, and the space of process numbers: they mean nothing elsewhere."""
    words = [socket.gethostname()]
    with contextlib.suppress(OSError):
        words += [
            Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            str(Path("/proc/self/ns/pid").readlink()),
        ]
    return " ".join(words)


def identify(pid: int) -> ProcessId | None:
    """The living process with this number; None where there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return ProcessId(pid, int(fields[_START_FIELD]))


def is_alive(process: ProcessId) -> bool:
    """True where this very process still runs."""
    return identify(process.pid) == process


def name_of(pid: int) -> str:
    """A process in words: ``4242 (python, alice)``; the number alone where no more can be seen."""
    import psutil

    try:
        process = psutil.Process(pid)
        return f"{pid} ({process.name()}, {process.username()})"
    except psutil.Error:
        return str(pid)


def marked(mark: str) -> list[ProcessId]:
    """The living processes whose environment carries a trial's mark, ourselves apart."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if needle in (folder / "environ").read_bytes().split(b"\0"):
                found.append(identify(int(folder.name)))
    return [process for process in found if process is not None]


def tree(root_pid: int) -> list[ProcessId]:
    """The process and everything below it."""
    import psutil

    pids = [root_pid]
    with contextlib.suppress(psutil.Error):
        pids += [process.pid for process in psutil.Process(root_pid).children(recursive=True)]
    return [process for pid in pids if (process := identify(pid)) is not None]


def end_all(processes: Sequence[ProcessId], grace_seconds: float) -> list[ProcessId]:
    """Send TERM, and KILL when the grace is over; returns those that still run, as another user's do."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 2.0)):
        for process in filter(is_alive, processes):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
        if not _left_after(processes, seconds):
            return []
    return list(filter(is_alive, processes))


def _left_after(processes: Iterable[ProcessId], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_alive, processes)):
        if time.monotonic() >= deadline:
            return True
        time.sleep(0.05)
    return False
