"""Server-sent events come out whole however their bytes were cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.verify.sse import MAX_EVENT_BYTES, EventReader, OversizedEventError

LINE = st.binary(max_size=40).map(lambda raw: raw.translate(None, b"\r\n"))


def pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes cut at the given places."""
    places = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    return [raw[start:end] for start, end in pairwise(places)]


@given(
    events=st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=5),
    cuts=st.lists(st.integers(min_value=0, max_value=500), max_size=20),
    ending=st.sampled_from([b"\n", b"\r\n"]),
)
def test_written_events_are_read_back(events: list[list[bytes]], cuts: list[int], ending: bytes) -> None:
    """What was written as events is read as the same events, wherever the network cut the bytes."""
    raw = b"".join(b"".join(b"data: " + line + ending for line in event) + ending for event in events)
    reader = EventReader()

    read = [event for piece in pieces(raw, cuts) for event in reader.feed(piece)]

    assert [b"\n".join(event) for event in events] == read


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_read_without_an_error(chunks: list[bytes]) -> None:
    """Foreign bytes never raise, and never make more events than lines."""
    reader = EventReader()

    events = [event for chunk in chunks for event in reader.feed(chunk)]

    assert len(events) <= sum(chunk.count(b"\n") + chunk.count(b"\r") for chunk in chunks)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 1\ndata: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n", []),
        (b"data\n\n", []),
    ],
)
def test_fields_as_the_standard_has_them(raw: bytes, expected: list[bytes]) -> None:
    """Comments and other fields are skipped, one space belongs to the colon, an event ends at an empty line."""
    assert expected == EventReader().feed(raw)


def test_an_endless_event_is_refused() -> None:
    """An event that never ends is given up before it fills the memory."""
    reader = EventReader()

    with pytest.raises(OversizedEventError):
        reader.feed(b"data: " + b"x" * MAX_EVENT_BYTES)
    with pytest.raises(OversizedEventError):
        EventReader().feed(b"data:\n" * (MAX_EVENT_BYTES // 6 + 1))
