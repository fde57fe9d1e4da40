"""The charts show the record's numbers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.report.charts.draw import PHONE_PX, WIDE_PX, picture
from fitserve.report.charts.ledger import OTHERS, UNREQUESTED, UNTOLD, ledger_bars, ledger_spec
from fitserve.report.charts.over_time import MOST_POINTS, over_time_spec
from fitserve.report.charts.theme import log_ticks
from fitserve.trial.outcome import DeviceSamples, Samples
from fitserve.units import GIB
from tests.report.html.whole import whole_record


def test_a_bar_ends_where_the_device_does() -> None:
    """The parts of a bar are together the device, but for what vLLM rounds; others and the unrequested are told apart."""
    for bar in ledger_bars(whole_record()):
        assert bar.total_bytes is not None
        assert abs(sum(bar.parts.values()) - bar.total_bytes) < 0.02 * GIB
        assert round(0.43 * GIB) == pytest.approx(bar.parts[OTHERS], abs=2)
        assert round((22.05 - 19.84 - 0.43) * GIB) == pytest.approx(bar.parts[UNREQUESTED], abs=4)


def test_what_is_missing_is_no_part_of_the_bar() -> None:
    """Where less than nothing is left for the KV cache, the bar has no such part, and how much is missing is kept."""
    record = whole_record()
    trial = record.trials[0]
    assert trial.diagnosis is not None
    budget = [
        {
            "rank": "0",
            "weights_bytes": {"expected": 5 * GIB},
            "kv_cache_bytes": {"expected": -GIB},
            "total_bytes": {"unknown": "x"},
        }
    ]
    diagnosis = msgspec.structs.replace(trial.diagnosis, budget=budget)
    changed = msgspec.structs.replace(trial, diagnosis=diagnosis, samples=None)
    [bar] = ledger_bars(msgspec.structs.replace(record, trials=[changed]))

    assert {"weights": 5 * GIB} == bar.parts
    assert (GIB, None) == (bar.missing_bytes, bar.total_bytes)


def test_what_the_log_does_not_tell_apart_is_one_part() -> None:
    """Where vLLM prints weights, graphs and cache alone, the driver's total and the share give the rest, as one part."""
    record = whole_record()
    trial = record.trials[0]
    assert trial.diagnosis is not None
    told = {"weights": 7.51, "cuda_graph": 0.98, "kv_cache": 9.32}
    budget = [
        {"rank": "0", **{f"{name}_bytes": {"expected": round(size * GIB)} for name, size in told.items()}}
    ]
    changed = msgspec.structs.replace(
        trial,
        diagnosis=msgspec.structs.replace(trial.diagnosis, budget=budget),
        memory=msgspec.structs.replace(trial.memory, printed={"gpu_memory_utilization": 0.9}),
    )
    [bar] = ledger_bars(msgspec.structs.replace(record, trials=[changed]))

    assert round(22.05 * GIB) == bar.total_bytes
    assert bar.requested_bytes == pytest.approx(0.9 * 22.05 * GIB, abs=2)
    assert bar.parts[UNTOLD] == pytest.approx((0.9 * 22.05 - sum(told.values())) * GIB, abs=4)
    assert bar.parts[UNREQUESTED] == pytest.approx(0.1 * 22.05 * GIB, abs=4)


def test_a_long_trial_is_thinned_and_keeps_its_ends() -> None:
    """A day of samples gives no more points than a page is wide, the first and the last among them."""
    count = 86_400
    device = DeviceSamples(
        device="0",
        total_bytes=GIB,
        used_bytes=[1] * count,
        own_bytes=list(range(count)),
        others_bytes=[0] * count,
    )
    samples = Samples(seconds=[float(at) for at in range(count)], rss_bytes=[0] * count, devices=[device])
    rows = over_time_spec(whole_record().trials[0], samples, WIDE_PX)["data"]["values"]

    assert MOST_POINTS == len(rows)
    assert (0.0, 86_399.0) == (rows[0]["seconds"], rows[-1]["seconds"])


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_log_ticks_cover_what_is_drawn(values: list[float]) -> None:
    """The lines of an axis rise, are at least two, and reach from below the smallest value to above the largest."""
    ticks = log_ticks(values)

    assert ticks == sorted(set(ticks))
    assert len(ticks) >= 2
    assert ticks[0] <= min(values) * (1 + 1e-9)
    assert ticks[-1] >= max(values) * (1 - 1e-9)


@pytest.mark.parametrize("width", [WIDE_PX, PHONE_PX])
def test_a_drawing_is_as_wide_as_asked(width: int) -> None:
    """The picture's box is the width that was asked for, legend and labels included."""
    box = picture(ledger_spec(ledger_bars(whole_record()), width)).box.split()

    assert width == pytest.approx(float(box[2]), abs=4)
