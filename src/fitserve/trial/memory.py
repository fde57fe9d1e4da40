"""The memory that a process tree holds (o: /proc)."""

import contextlib
import time


class TreeMemory:
    """The largest sum of resident memory over a tree, sampled once a second.

    Memory that processes share is counted once in each of them.

    Attributes:
        peak_rss_bytes: the largest sum so far.
    """

    def __init__(self, root_pid: int) -> None:
        self.root_pid = root_pid
        self.peak_rss_bytes = 0
        self._next = 0.0

    def sample(self) -> None:
        """Look at the tree, unless that was done within the last second."""
        if time.monotonic() < self._next:
            return
        import psutil

        self._next = time.monotonic() + 1.0
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.root_pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    total += process.memory_info().rss
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
