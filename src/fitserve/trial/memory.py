"""The memory that a trial holds, while it lasts: its process tree, and the devices that it can see (o: /proc, the driver).

The tree is looked at once a second by whoever watches the trial; the devices by a thread of their own, because a driver may
answer slowly, wrongly or never, and the trial must not feel that.
"""

import contextlib
import threading
import time
from pathlib import Path

from fitserve.trial.devices import Held, Probe
from fitserve.trial.identity import name_of
from fitserve.trial.outcome import Memory, PhasePeak, Samples
from fitserve.trial.series import DeviceUse, Point, Series
from fitserve.units import MIB, gib

NOTICED_BYTES = 256 * MIB
"""How much a neighbour must take to be named: less than one CUDA context with its libraries takes on a recent device."""

_TREE_EVERY_SECONDS = 1.0
_FAILURES_IN_A_ROW = 5
_CLOSE_SECONDS = 1.0


class TrialMemory:
    """The memory of one trial over time.

    Memory that processes share is counted once in each of them.

    Args:
        root_pid: the process above the trial's own.
        probe: how the devices are asked; None where there is none.
        cid_file: where a container's id is written, whose processes are the trial's as well.
    """

    def __init__(self, root_pid: int, probe: Probe | None = None, cid_file: Path | None = None) -> None:
        self.root_pid = root_pid
        self.stage = "config"
        self.peak_rss_bytes = 0
        self._probe = probe
        self._cid_file = cid_file
        self._series = Series()
        self._launched = time.monotonic()
        self._next = 0.0
        self._rss_bytes = 0
        self._pids: set[int] = set()
        self._others: dict[tuple[str, int], _Neighbour] = {}
        self._first_used: dict[str, int] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if probe is not None:
            self._thread = threading.Thread(target=self._ask_on, args=(probe,), name="memory", daemon=True)
            self._thread.start()

    def sample(self) -> None:
        """Look at the tree, unless that was done within the last second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _TREE_EVERY_SECONDS
        self._rss_bytes, self._pids = _tree(self.root_pid)
        self.peak_rss_bytes = max(self.peak_rss_bytes, self._rss_bytes)
        if self._probe is None:
            self._add(())

    def close(self) -> None:
        """Ask no more; a driver that does not come back is left alone."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def memory(self) -> Memory:
        """The peaks."""
        peaks = self._series.peaks()
        own = [peak.own_bytes for peak in peaks if peak.own_bytes is not None]
        return Memory(
            peak_rss_bytes=self.peak_rss_bytes, peak_gpu_bytes=max(own) if own else None, peaks=_told(peaks)
        )

    def samples(self) -> Samples:
        """Everything over time."""
        seen = self._probe is not None and any(peak.own_bytes is not None for peak in self._series.peaks())
        return self._series.samples(self._probe.source if seen and self._probe else "proc")

    def notes(self) -> list[str]:
        """The neighbours that took memory while the trial ran, one sentence each."""
        found = sorted(self._others.items())
        return [
            f"process {each.name} took {gib(each.most_bytes - each.first_bytes)} of device {device} while this trial ran"
            for (device, _), each in found
            if each.most_bytes - each.first_bytes >= NOTICED_BYTES
        ]

    def _ask_on(self, probe: Probe) -> None:
        failures = 0
        while failures < _FAILURES_IN_A_ROW:
            try:
                self._add(tuple(map(self._use, probe.ask())))
                failures = 0
            except Exception:  # noqa: BLE001 - a foreign driver: whatever it raises, the trial goes on without it
                failures += 1
            if self._closing.wait(probe.pace_seconds):
                return

    def _add(self, uses: tuple[DeviceUse, ...]) -> None:
        seconds = time.monotonic() - self._launched
        self._series.add(Point(seconds=seconds, rss_bytes=self._rss_bytes, devices=uses), self.stage)

    def _use(self, held: Held) -> DeviceUse:
        """A device's memory, told apart: by process where the driver does, else by what was there at first."""
        first = self._first_used.setdefault(held.device, held.used_bytes)
        own, others = max(0, held.used_bytes - first), first
        if held.by_pid is not None:
            own, others = 0, 0
            for pid, size in held.by_pid.items():
                if self._is_own(pid):
                    own += size
                else:
                    others += size
                    self._see(held.device, pid, size, is_first=not self._series.peaks())
        return DeviceUse(
            device=held.device,
            total_bytes=held.total_bytes,
            used_bytes=held.used_bytes,
            own_bytes=own,
            others_bytes=others,
        )

    def _see(self, device: str, pid: int, size: int, *, is_first: bool) -> None:
        known = self._others.get((device, pid))
        if known is None:
            self._others[device, pid] = _Neighbour(name_of(pid), size if is_first else 0, size)
        else:
            known.most_bytes = max(known.most_bytes, size)

    def _is_own(self, pid: int) -> bool:
        if pid in self._pids:
            return True
        if _is_below(pid, self.root_pid):  # it has started since the tree was looked at
            self._pids = {*self._pids, pid}
            return True
        if self._cid_file is None:
            return False
        with contextlib.suppress(OSError):
            container = self._cid_file.read_text(encoding="ascii").strip()
            return bool(container) and container in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
        return False


class _Neighbour:
    def __init__(self, name: str, first_bytes: int, most_bytes: int) -> None:
        self.name = name
        self.first_bytes = first_bytes
        self.most_bytes = most_bytes


def _told(peaks: list[PhasePeak]) -> list[PhasePeak]:
    return [peak for peak in peaks if peak.rss_bytes or peak.own_bytes]


def _tree(root_pid: int) -> tuple[int, set[int]]:
    """The resident memory and the numbers of everything below a process."""
    import psutil

    total, pids = 0, set()
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(root_pid).children(recursive=True):
            pids.add(process.pid)
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_info().rss
    return total, pids


def _is_below(pid: int, root_pid: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return any(parent.pid == root_pid for parent in psutil.Process(pid).parents())
    return False
