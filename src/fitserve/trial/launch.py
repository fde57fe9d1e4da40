"""Starts a program under a reaper, and ends it with everything below it."""

import contextlib
import errno
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fitserve.errors import MachineError
from fitserve.trial import reaper
from fitserve.trial.capture import Capture, LogFile, open_pipe

_REAPER_PATIENCE_SECONDS = 10.0
"""How long the end may take beyond its grace before the reaper counts as lost."""


class Exit(msgspec.Struct, frozen=True):
    """How a program ended: by itself with a code, or by a signal."""

    code: int | None
    signal: int | None

    @property
    def shell_code(self) -> int:
        """The code as a shell gives it: 128 + the signal for a program that a signal ended."""
        if self.signal is not None:
            return 128 + self.signal
        return self.code if self.code is not None else 1


class Process:
    """A started program, and everything below it.

    Attributes:
        pid: the program's process id.
        reaper_pid: the id of the process above it, the root of its tree.
        output: its output.
        lost: True where both processes above it were killed, so that nobody has ended what the program left.
    """

    def __init__(self, keeper: subprocess.Popen[bytes], control: int, status: int, output: Capture) -> None:
        self.output = output
        self.reaper_pid = keeper.pid
        self.pid = 0
        self.failed_errno: int | None = None
        self.exit: Exit | None = None
        self.gone = False
        self.lost = False
        self._keeper = keeper
        self._control: int | None = control
        self._status = status
        self._pending = b""

    def poll(self) -> Exit | None:
        """How it ended; None while it runs."""
        self._read_status(0)
        return self.exit

    def wait_started(self) -> None:
        """Wait until it runs, or cannot."""
        while self.pid == 0 and self.failed_errno is None and not self.gone:
            self._read_status(None)

    def wait(self, seconds: float | None = None) -> Exit | None:
        """Wait until it has ended, at most so long; None where it still runs."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.exit is None and not self.gone and self._control is not None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self._read_status(left)
        return self.exit

    def signal(self, number: int) -> None:
        """Hand a signal on to the program; nothing happens once it has ended."""
        self._order(f"signal {number}")

    def end(self, grace_seconds: float) -> None:
        """End the program and everything below it: TERM, the grace, then KILL. A second call may shorten the grace."""
        if self._control is None:
            return
        self._order(f"end {grace_seconds}")
        deadline = time.monotonic() + grace_seconds + _REAPER_PATIENCE_SECONDS
        while not self.gone and (left := deadline - time.monotonic()) > 0:
            self._read_status(left)
        self.close()

    def close(self) -> None:
        """Let go of the reaper; whatever were left would be ended by it."""
        if self._control is not None:
            os.close(self._control)
            self._control = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(_REAPER_PATIENCE_SECONDS)
            os.close(self._status)
            self.output.join(_REAPER_PATIENCE_SECONDS)

    def _order(self, order: str) -> None:
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, f"{order}\n".encode())

    def _read_status(self, seconds: float | None) -> None:
        if self._control is None or not select.select([self._status], [], [], seconds)[0]:
            return
        data = os.read(self._status, 4096)
        if not data:
            self.lost = not self.gone
            self.gone = True
            # Both of the reaper's processes have been killed: the kernel kills the program with them.
            self.exit = self.exit or Exit(None, 9)
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._note(*line.decode().split(" "))

    def _note(self, word: str, value: str = "0") -> None:
        if word == "started":
            self.pid = int(value)
        elif word == "failed":
            self.failed_errno = int(value)
        elif word == "exited":
            code = int(value)
            self.exit = Exit(None, -code) if code < 0 else Exit(code, None)
        elif word == "gone":
            self.gone = True
            if self.pid:
                # The keeper has been killed before it could tell, and the program with it.
                self.exit = self.exit or Exit(None, 9)


def launch(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_path: Path,
    pass_through: bool = False,
    container: tuple[str, Path] | None = None,
    stop: Sequence[str] = (),
) -> Process:
    """Start a program in a session of its own, under a reaper.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        log_path: where its output is kept.
        pass_through: its output also goes to our own streams, and it reads our standard input; else both of its
            streams share one pipe, which keeps their order.
        container: the container engine's program and the file that it writes the container's id to.
        stop: a command that ends what is no process below the program; run when the program is gone.

    Raises:
        MachineError: there is no such program, it cannot be run, or the log cannot be written.
    """
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        raise _cannot_run(argv[0], errno.ENOENT if "/" not in argv[0] else _errno_of(argv[0]))
    log = _open_log(log_path)
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    out_read, out_write = open_pipe()
    err_read, err_write = open_pipe() if pass_through else (None, None)
    engine, cid_file = container or ("", "")
    keeper = subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", reaper.__file__),
            *(str(control_read), str(status_write), engine, str(cid_file), str(len(stop)), *stop),
            "--",
            *argv,
        ],
        env=dict(env),
        stdin=None if pass_through else subprocess.DEVNULL,
        stdout=out_write,
        stderr=err_write if err_write is not None else out_write,
        pass_fds=(control_read, status_write),
        start_new_session=True,
    )
    for descriptor in (control_read, status_write, out_write, err_write):
        if descriptor is not None:
            os.close(descriptor)
    streams: dict[int, int | None] = {out_read: 1 if pass_through else None}
    if err_read is not None:
        streams[err_read] = 2
    process = Process(keeper, control_write, status_read, Capture(log, streams))
    try:
        process.wait_started()
    except BaseException:
        process.end(0)
        raise
    if process.pid == 0:
        process.close()
        if process.failed_errno is None:
            raise MachineError(
                "the process that keeps the program was killed before it could start it",
                where=argv[0],
                hint="start it again",
            )
        raise _cannot_run(argv[0], process.failed_errno)
    return process


def _open_log(path: Path) -> LogFile:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return LogFile(path)
    except OSError as error:
        raise MachineError(
            f"the log cannot be written: {error.strerror}",
            where=str(path),
            hint="name another folder with --log-dir",
        ) from error


def _errno_of(path: str) -> int:
    return errno.EACCES if Path(path).exists() else errno.ENOENT


def _cannot_run(program: str, number: int) -> MachineError:
    if number == errno.ENOENT:
        return MachineError(
            f"there is no program {program}",
            where=program,
            hint="install vLLM, or give the path of its program",
        )
    return MachineError(f"the program cannot be run: {os.strerror(number)}", where=program)
