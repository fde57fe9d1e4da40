"""Takes a program's output as fast as it comes: into a log file, through to our own streams, and to a watcher."""

import contextlib
import errno
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

KEPT_HEAD_BYTES = 16 << 20
"""How much of the output's beginning the log file keeps: any start-up, with room to spare, and still read in seconds."""

KEPT_TAIL_BYTES = 8 << 20
"""How much of the output's end it keeps besides."""

BACKLOG_BYTES = 8 << 20
"""How far the watcher may fall behind before it misses lines; the log file misses none."""

_CHUNK_BYTES = 1 << 16
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Chunks:
    """The newest bytes of a stream, up to a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held: deque[bytes] = deque()
        self.held_bytes = 0
        self.dropped_bytes = 0

    def add(self, data: bytes) -> None:
        """Append, and let the oldest go beyond the limit."""
        self.held.append(data)
        self.held_bytes += len(data)
        while self.held_bytes > self.limit_bytes:
            oldest = self.held.popleft()
            self.held_bytes -= len(oldest)
            self.dropped_bytes += len(oldest)

    def take(self, most_bytes: int) -> bytes:
        """Remove and return the oldest bytes, about as many as asked for."""
        taken = []
        size = 0
        while self.held and size < most_bytes:
            taken.append(self.held.popleft())
            size += len(taken[-1])
        self.held_bytes -= size
        return b"".join(taken)


class LogFile:
    """The beginning and the end of an output in a file; a full disk ends the writing, never the program.

    Raises:
        OSError: the file cannot be made, for another reason than a full disk.

    Attributes:
        path: the file, readable by its owner alone.
        failure: why writing has ended early; None while all is well.
    """

    def __init__(
        self, path: Path, *, head_bytes: int = KEPT_HEAD_BYTES, tail_bytes: int = KEPT_TAIL_BYTES
    ) -> None:
        self.path = path
        self.failure: str | None = None
        self.left_bytes = head_bytes
        self.tail = Chunks(tail_bytes)
        self.descriptor = -1
        try:
            self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            self.failure = error.strerror

    def add(self, data: bytes) -> None:
        """Keep some output."""
        head, rest = data[: self.left_bytes], data[self.left_bytes :]
        self.left_bytes -= len(head)
        self._write(head)
        if rest:
            self.tail.add(rest)

    @property
    def cut_words(self) -> str:
        """What the file does not have, in one sentence; empty where it has everything."""
        if not self.tail.dropped_bytes:
            return ""
        return f"{self.tail.dropped_bytes:,} bytes from the middle of its log were not kept"

    def close(self) -> None:
        """Write the end behind the beginning, with a line that says what is missing between them."""
        if self.tail.dropped_bytes:
            self._write(f"\n... {self.tail.dropped_bytes:,} bytes of output are left out here ...\n".encode())
        self._write(self.tail.take(self.tail.limit_bytes))
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def _write(self, data: bytes) -> None:
        try:
            while data and self.failure is None:
                data = data[os.write(self.descriptor, data) :]
        except OSError as error:
            self.failure = error.strerror or str(error)


class Capture:
    """A thread that drains a program's output.

    Args:
        log: where it is kept.
        streams: the pipes to read, each with the descriptor that its bytes are passed on to; None passes nothing on.

    Attributes:
        total_bytes: how much has come.
        heard: when the last of it came, on the monotonic clock.
    """

    def __init__(self, log: LogFile, streams: Mapping[int, int | None]) -> None:
        self.log = log
        self.streams = dict(streams)
        self.total_bytes = 0
        self.heard = time.monotonic()
        self._backlog = Chunks(BACKLOG_BYTES)
        self._news = threading.Condition()
        self._over = False
        self._woken = False
        self._thread = threading.Thread(target=self._drain, name="capture", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True when every writer has closed its end and all of it is kept."""
        return not self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the output."""
        self._thread.join(seconds)

    def read(self, most_bytes: int = -1) -> bytes:
        """The next bytes for the watcher, as soon as there are some; none at the end of the output, or when woken."""
        with self._news:
            self._news.wait_for(lambda: self._backlog.held or self._over or self._woken)
            return self._backlog.take(most_bytes if most_bytes > 0 else BACKLOG_BYTES)

    def wake(self) -> None:
        """Let whoever waits for bytes go on without any, from now on."""
        with self._news:
            self._woken = True
            self._news.notify_all()

    def _drain(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    if data := os.read(key.fd, _CHUNK_BYTES):
                        self._keep(key.fd, data)
                    else:
                        selector.unregister(key.fd)
                        os.close(key.fd)
        self.log.close()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _keep(self, stream: int, data: bytes) -> None:
        self.log.add(data)
        self._pass_on(stream, data)
        with self._news:
            self.total_bytes += len(data)
            self.heard = time.monotonic()
            self._backlog.add(data)
            self._news.notify_all()

    def _pass_on(self, stream: int, data: bytes) -> None:
        target = self.streams[stream]
        if target is None:
            return
        try:
            while data:
                data = data[os.write(target, data) :]
        except OSError:
            # Nobody reads it any more, or its disk is full: the program must not suffer from that.
            self.streams[stream] = None


def open_pipe() -> tuple[int, int]:
    """A pipe as large as the kernel gives, so that a burst never waits for the reader."""
    read, write = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        import fcntl

        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
    return read, write
