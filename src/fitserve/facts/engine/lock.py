"""One installer at a time."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[int]:
    """Hold a lock file and yield its descriptor; wait where another process has it.

    A child that inherits the descriptor shares the lock: it is free only when the last of them has ended. That is why the lock is
    taken here and not by a library, which would keep its descriptor to itself.

    Args:
        path: the lock file; it stays.
        on_wait: is called once before waiting.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
