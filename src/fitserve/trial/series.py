"""Memory over time in few points: the most of each stretch, so that no peak is lost."""

import threading
from collections.abc import Iterable

import msgspec

from fitserve.trial.outcome import DeviceSamples, PhasePeak, Samples

MOST_POINTS = 500


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """One device at one moment.

    Attributes:
        device: its UUID, or its number.
        total_bytes: all of it.
        used_bytes: everything that is used.
        own_bytes: what the trial's processes hold.
        others_bytes: what other processes hold.
    """

    device: str
    total_bytes: int
    used_bytes: int
    own_bytes: int
    others_bytes: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment, or the most of each over a stretch.

    Attributes:
        seconds: after the launch; the beginning of the stretch.
        rss_bytes: resident memory of the trial's processes.
        devices: in the order of the first point.
    """

    seconds: float
    rss_bytes: int
    devices: tuple[DeviceUse, ...] = ()


class Series:
    """At most ``MOST_POINTS`` points, however long it goes on: when they are used up, each stands for twice as long."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._open: list[Point] = []
        self._stride = 1
        self._peaks: dict[str, PhasePeak] = {}
        self._lock = threading.Lock()

    def add(self, point: Point, stage: str) -> None:
        """Append what was seen in a stage."""
        with self._lock:
            self._peaks[stage] = _higher(self._peaks.get(stage, PhasePeak(stage=stage)), point)
            self._open.append(point)
            if len(self._open) >= self._stride:
                self._points.append(most(self._open))
                self._open = []
            if len(self._points) >= MOST_POINTS:
                self._points = [most(self._points[at : at + 2]) for at in range(0, len(self._points), 2)]
                self._stride *= 2

    def peaks(self) -> list[PhasePeak]:
        """The most of each stage, in the order in which they were reached."""
        with self._lock:
            return list(self._peaks.values())

    def samples(self, source: str) -> Samples:
        """The points in columns."""
        with self._lock:
            points = [*self._points, *([most(self._open)] if self._open else [])]
        names = list(dict.fromkeys(use.device for point in points for use in point.devices))
        return Samples(
            source=source,
            seconds=[round(point.seconds, 2) for point in points],
            rss_bytes=[point.rss_bytes for point in points],
            devices=[_column(name, points) for name in names],
        )


def most(points: Iterable[Point]) -> Point:
    """One point for several that follow each other: the most of everything."""
    points = list(points)
    uses: dict[str, list[DeviceUse]] = {}
    for point in points:
        for use in point.devices:
            uses.setdefault(use.device, []).append(use)
    return Point(
        seconds=points[0].seconds,
        rss_bytes=max(point.rss_bytes for point in points),
        devices=tuple(
            DeviceUse(
                device=name,
                total_bytes=several[0].total_bytes,
                used_bytes=max(use.used_bytes for use in several),
                own_bytes=max(use.own_bytes for use in several),
                others_bytes=max(use.others_bytes for use in several),
            )
            for name, several in uses.items()
        ),
    )


def _higher(peak: PhasePeak, point: Point) -> PhasePeak:
    own, used = peak.own_bytes, peak.used_bytes
    if point.devices:
        own = max(own or 0, sum(use.own_bytes for use in point.devices))
        used = max(used or 0, sum(use.used_bytes for use in point.devices))
    return PhasePeak(
        stage=peak.stage, rss_bytes=max(peak.rss_bytes, point.rss_bytes), own_bytes=own, used_bytes=used
    )


def _column(name: str, points: list[Point]) -> DeviceSamples:
    """One device over all points; a point without it repeats the one before."""
    used, own, others, total = [0], [0], [0], 0
    for point in points:
        use = next((use for use in point.devices if use.device == name), None)
        total = use.total_bytes if use else total
        used.append(use.used_bytes if use else used[-1])
        own.append(use.own_bytes if use else own[-1])
        others.append(use.others_bytes if use else others[-1])
    return DeviceSamples(
        device=name, total_bytes=total, used_bytes=used[1:], own_bytes=own[1:], others_bytes=others[1:]
    )
