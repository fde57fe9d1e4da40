"""The process between the tool and what it starts: nothing below it outlives the tool.

It is a program of its own (``python -I -S reaper.py CONTROL STATUS ENGINE CIDFILE -- ARGV``) that imports the standard library
alone, so that it is there within some 20 milliseconds. It becomes the subreaper of everything below it: a process that
leaves its group or session, or loses its parent, stays its descendant. Its standard streams are the program's.

From CONTROL, a pipe, it reads lines: ``signal N`` goes to the program; ``end SECONDS`` ends everything, gently first.
When the pipe closes, the tool is gone, and it ends everything. To STATUS it writes lines: ``started PID``,
``failed ERRNO``, ``exited CODE`` (negative: the signal), ``gone`` when nothing is left.

A container is nobody's descendant: where ENGINE (docker) is given, the container whose id is in CIDFILE is killed at the end.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

ORPHANED_GRACE_SECONDS = 2.0
"""How long the program may tidy up after the tool has died."""

LEFTOVER_GRACE_SECONDS = 1.0
"""How long the program's own processes may take to end after it."""

CONTAINER_SECONDS = 5.0
"""How long the container's engine may take to kill it."""

_TICK_SECONDS = 0.05


def main(arguments: list[str]) -> int:
    """Start the program, obey the pipe, leave nothing behind."""
    control, status = int(arguments[0]), int(arguments[1])
    wake = _handle_signals()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        program = subprocess.Popen(
            arguments[5:],
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        _tell(status, f"failed {error.errno or 0}")
        return 1
    _let_go_of_streams()
    _tell(status, f"started {program.pid}")
    _Keeper(program.pid, control, status, wake).keep()
    _kill_container(arguments[2], arguments[3])
    _tell(status, "gone")
    return 0


def _handle_signals() -> int:
    """Shrug off what is meant for the tool, and return the pipe that a child's end makes readable.

    A handler, unlike an ignored signal, is not handed on to the program; what was ignored before us stays so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _do_nothing)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, _do_nothing)
    return wake_read


def _do_nothing(_number: int, _frame: object) -> None:
    pass


class _Keeper:
    """Waits for the program, the pipe and every adopted process."""

    def __init__(self, program: int, control: int, status: int, wake: int) -> None:
        self.program = program
        self.control: int | None = control
        self.status = status
        self.wake = wake
        self.alive = True
        self.deadline: float | None = None
        self.pending = b""

    def keep(self) -> None:
        """Return when the program and everything below it are gone."""
        while True:
            self.collect()
            if not self.alive and not descendants():
                break
            if self.deadline is not None and time.monotonic() >= self.deadline:
                kill_all(signal.SIGKILL)
            self.listen()

    def collect(self) -> None:
        """Take the exit codes of whatever has ended."""
        while True:
            try:
                pid, state = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, state = 0, 0
            if pid == 0:
                return
            if pid == self.program:
                self.alive = False
                _tell(self.status, f"exited {os.waitstatus_to_exitcode(state)}")
                kill_all(signal.SIGTERM)
                self.end_within(LEFTOVER_GRACE_SECONDS)

    def listen(self) -> None:
        """Wait for an order, an end, or the deadline."""
        reading = [self.wake] if self.control is None else [self.wake, self.control]
        ready, _, _ = select.select(reading, [], [], None if self.deadline is None else _TICK_SECONDS)
        if self.wake in ready:
            os.read(self.wake, 4096)
        if self.control in ready and self.control is not None:
            self.obey(os.read(self.control, 4096))

    def obey(self, data: bytes) -> None:
        """Carry out the orders that have come; none at all means that the tool is gone."""
        if not data:
            self.control = None
            self.end(ORPHANED_GRACE_SECONDS)
            return
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            order, _, value = line.decode().partition(" ")
            if order == "signal" and self.alive:
                _send(self.program, int(value))
            elif order == "end":
                self.end(float(value))

    def end(self, grace_seconds: float) -> None:
        """Ask the program to end, and kill everything when the grace is over."""
        if self.alive and grace_seconds > 0:
            _send(self.program, signal.SIGTERM)
        self.end_within(grace_seconds)

    def end_within(self, seconds: float) -> None:
        """Set the time at which everything is killed; an earlier one stays."""
        deadline = time.monotonic() + seconds
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)


def descendants() -> list[int]:
    """Every living process below this one, zombies apart."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (parent := _living_parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill_all(number: int) -> None:
    """Send a signal to everything below this process, again until no new process has appeared meanwhile."""
    sent: set[int] = set()
    while new := set(descendants()) - sent:
        for pid in new:
            _send(pid, number)
        sent |= new


def _kill_container(engine: str, cid_file: str) -> None:
    """Kill the container that the program has left, if it has; one that has ended is not harmed."""
    if not engine:
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        with open(cid_file, encoding="ascii") as file:  # noqa: PTH123 - pathlib would double the start
            container = file.read().strip()
        os.unlink(cid_file)  # noqa: PTH108 - as above
        subprocess.run([engine, "kill", container], check=False, timeout=CONTAINER_SECONDS)


def _living_parent(pid: int) -> int | None:
    """The parent's id; None for a zombie or a process that has gone. Source: proc(5), /proc/pid/stat."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the start
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _die_with_parent() -> None:
    """In the child, before its program: if this process is killed outright, the program dies with it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """Ask the kernel; a system without prctl goes without."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _let_go_of_streams() -> None:
    """The streams are the program's: the tool sees their end when the program's processes are gone."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _tell(status: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
