"""Memory over time in few points: no peak is lost, no list is longer than another."""

from hypothesis import given
from hypothesis import strategies as st

from fitserve.trial.outcome import PhasePeak
from fitserve.trial.series import MOST_POINTS, DeviceUse, Point, Series


def use(device: str, used: int, own: int) -> DeviceUse:
    """A device of 1,000 bytes."""
    return DeviceUse(device=device, total_bytes=1000, used_bytes=used, own_bytes=own, others_bytes=used - own)


def filled(values: list[tuple[int, int]]) -> Series:
    """A series with a point a second."""
    series = Series()
    for second, (own, rss) in enumerate(values):
        series.add(
            Point(seconds=second, rss_bytes=rss, devices=(use("a", own + 5, own), use("b", 7, 7))),
            "weights" if second < 600 else "serving",
        )
    return series


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 10**12)), min_size=1, max_size=2500))
def test_a_series_stays_short_and_keeps_its_peaks(values: list[tuple[int, int]]) -> None:
    """At most 500 points, in order of time, with the highest of every figure among them."""
    samples = filled(values).samples("NVML")
    a, b = samples.devices

    assert len(samples.seconds) <= MOST_POINTS
    assert sorted(set(samples.seconds)) == samples.seconds
    assert {len(samples.seconds)} == {
        len(column) for column in (samples.rss_bytes, a.used_bytes, a.own_bytes, a.others_bytes, b.own_bytes)
    }
    assert max(own for own, _ in values) == max(a.own_bytes)
    assert max(rss for _, rss in values) == max(samples.rss_bytes)
    assert {7} == set(b.own_bytes)


def test_each_phase_has_its_peak() -> None:
    """On all devices together, exactly, however much was thinned out since."""
    values = [(second % 900, second) for second in range(2000)]

    assert [
        PhasePeak(stage="weights", rss_bytes=599, own_bytes=599 + 7, used_bytes=599 + 5 + 7),
        PhasePeak(stage="serving", rss_bytes=1999, own_bytes=899 + 7, used_bytes=899 + 5 + 7),
    ] == filled(values).peaks()


def test_a_series_without_devices_has_resident_memory_alone() -> None:
    """On a machine without devices nothing is made up about them."""
    series = Series()
    series.add(Point(seconds=0, rss_bytes=4), "config")

    assert [PhasePeak(stage="config", rss_bytes=4)] == series.peaks()
    assert ([4], []) == (series.samples("proc").rss_bytes, series.samples("proc").devices)
    assert ([], []) == (Series().samples("proc").seconds, Series().peaks())
