"""The processes between the tool and what it starts: nothing below them outlives the tool.

It is a program of its own (``python -I -S reaper.py CONTROL STATUS ENGINE CIDFILE N STOP... -- ARGV``) that imports the
standard library alone, so that it is there within some 20 milliseconds. It becomes two processes, each the subreaper of
everything below it: a process that leaves its group or session, or loses its parent, stays a descendant of both. The
keeper starts the program and obeys the tool. The guard above it does nothing but wait: when the keeper is killed, what it
kept falls to the guard, which kills it. When the guard is killed, the keeper sees that, and ends everything itself.

From CONTROL, a pipe, the keeper reads lines: ``signal N`` goes to the program; ``end SECONDS`` ends everything, gently
first. When the pipe closes, the tool is gone, and it ends everything. To STATUS it writes lines: ``started PID``,
``failed ERRNO``, ``exited CODE`` (negative: the signal), ``gone`` when nothing is left.

A container is nobody's descendant: where ENGINE (docker) is given, the container whose id is in CIDFILE is killed at the
end; the N words of STOP are a command that ends what was started in another way.
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

STOP_SECONDS = 30.0
"""How long the command of STOP may take: compose gives a container 10 seconds before it kills it."""

_TICK_SECONDS = 0.05
_PASSED_OVER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> int:
    """Become guard and keeper, and leave nothing behind."""
    control, status, engine, cid_file = int(arguments[0]), int(arguments[1]), arguments[2], arguments[3]
    count = int(arguments[4])
    stop, argv = arguments[5 : 5 + count], arguments[6 + count :]
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard_read, guard_write = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(guard_write)
        code = _keep(argv, control, status, guard_read)
        _end_elsewhere(engine, cid_file, stop)
        _tell(status, "gone")
        os._exit(code)
    os.close(control)
    os.close(guard_read)
    for number in (*_PASSED_OVER, signal.SIGCHLD):
        signal.signal(number, _do_nothing)
    _let_go_of_streams()
    if _guard(keeper):
        _end_elsewhere(engine, cid_file, stop)
        _tell(status, "gone")
    return 0


def _guard(keeper: int) -> bool:
    """Wait until nothing is left; True where the keeper was killed and its work had to be done."""
    killed = False
    while True:
        try:
            pid, state = os.waitpid(-1, 0)
        except ChildProcessError:
            return killed
        killed = killed or (pid == keeper and os.WIFSIGNALED(state))
        if killed:
            kill_all(signal.SIGKILL)


def _keep(argv: list[str], control: int, status: int, guard: int) -> int:
    """Start the program and keep it until it and everything below it are gone."""
    wake = _handle_signals()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        program = subprocess.Popen(
            argv,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        _tell(status, f"failed {error.errno or 0}")
        return 1
    _let_go_of_streams()
    _tell(status, f"started {program.pid}")
    _Keeper(program.pid, control, status, wake, guard).keep()
    return 0


def _handle_signals() -> int:
    """Shrug off what is meant for the tool, and return the pipe that a child's end makes readable.

    A handler, unlike an ignored signal, is not handed on to the program; what was ignored before us stays so.
    """
    for number in _PASSED_OVER:
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
    """Waits for the program, the pipes and every adopted process."""

    def __init__(self, program: int, control: int, status: int, wake: int, guard: int) -> None:
        self.program = program
        self.control: int | None = control
        self.guard: int | None = guard
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
        """Wait for an order, an end, the guard's death, or the deadline."""
        reading = [each for each in (self.wake, self.control, self.guard) if each is not None]
        ready, _, _ = select.select(reading, [], [], None if self.deadline is None else _TICK_SECONDS)
        if self.wake in ready:
            os.read(self.wake, 4096)
        if self.guard in ready:
            self.guard = None
            self.end(ORPHANED_GRACE_SECONDS)
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


def _end_elsewhere(engine: str, cid_file: str, stop: list[str]) -> None:
    """End what is no descendant: the container, if it is still there, and what the command of STOP ends."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if engine:
            with open(cid_file, encoding="ascii") as file:  # noqa: PTH123 - pathlib would double the start
                container = file.read().strip()
            os.unlink(cid_file)  # noqa: PTH108 - as above
            subprocess.run([engine, "kill", container], check=False, timeout=CONTAINER_SECONDS)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if stop:
            subprocess.run(stop, check=False, timeout=STOP_SECONDS)


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
