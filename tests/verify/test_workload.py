"""The load that a user describes: drawn sizes, a recorded trace, and when requests arrive."""

import json
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError, UsageError
from fitserve.verify.answer import Answer
from fitserve.verify.open_loop import is_falling_behind, plan_arrivals
from fitserve.verify.options import Options
from fitserve.verify.workload import Size, Workload, plan_workload, read_trace


@given(st.integers(1, 10**5), st.floats(0, 0.99))
def test_drawn_sizes_stay_within_their_spread(middle: int, ratio: float) -> None:
    """Sizes are drawn from ``1 - ratio`` to ``1 + ratio`` of the middle, and none is empty."""
    workload = Workload(words="", input_tokens=middle, output_tokens=middle, random_range_ratio=ratio)

    sizes = list(islice(workload.sizes(None), 20))

    low, high = max(1, middle - int(middle * ratio)), middle + int(middle * ratio)
    assert all(low <= size.prompt_tokens <= high and low <= size.output_tokens <= high for size in sizes)


TRACES: dict[str, tuple[str, tuple[Size, ...]]] = {
    "sizes and times, made to start at 0 and put in order": (
        '{"input_tokens": 10, "output_tokens": 2, "at_seconds": 5.5}\n{"input_tokens": 20, "output_tokens": 4, "at_seconds": 5}\n',
        (
            Size(prompt_tokens=20, output_tokens=4, at_seconds=0.0),
            Size(prompt_tokens=10, output_tokens=2, at_seconds=0.5),
        ),
    ),
    "Mooncake's names, in milliseconds": (
        (
            '{"timestamp": 27500, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
            '{"timestamp": 30750, "input_length": 6472, "output_length": 26, "hash_ids": [46]}'
        ),
        (
            Size(prompt_tokens=6955, output_tokens=52, at_seconds=0.0),
            Size(prompt_tokens=6472, output_tokens=26, at_seconds=3.25),
        ),
    ),
    "OpenAI's usage, without times, empty lines left out": (
        '\n{"prompt_tokens": 7, "completion_tokens": 3}\r\n\n{"prompt_tokens": 8, "completion_tokens": 1}\n',
        (Size(prompt_tokens=7, output_tokens=3), Size(prompt_tokens=8, output_tokens=1)),
    ),
    "Alibaba's names, in seconds": (
        '{"timestamp": 61.5, "input_length": 1089, "output_length": 82}\n{"timestamp": 62, "input_length": 7, "output_length": 8}\n',
        (
            Size(prompt_tokens=1089, output_tokens=82, at_seconds=0.0),
            Size(prompt_tokens=7, output_tokens=8, at_seconds=0.5),
        ),
    ),
    "whole seconds that say so": (
        '{"at_seconds": 1, "input_tokens": 9, "output_tokens": 1}\n{"at_seconds": 3, "input_tokens": 9, "output_tokens": 1}\n',
        (
            Size(prompt_tokens=9, output_tokens=1, at_seconds=0.0),
            Size(prompt_tokens=9, output_tokens=1, at_seconds=2.0),
        ),
    ),
    "a mark of its byte order, and a time that is none": (
        '\ufeff{"input_tokens": 7, "output_tokens": 3, "at_seconds": ' + "9" * 400 + "}\n",
        (Size(prompt_tokens=7, output_tokens=3),),
    ),
    "a time that only some have is none": (
        '{"prompt_len": 7, "output_len": 3, "at_seconds": 1}\n{"prompt_len": 8, "max_tokens": 1}\n',
        (Size(prompt_tokens=7, output_tokens=3), Size(prompt_tokens=8, output_tokens=1)),
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_read(name: str, tmp_path: Path) -> None:
    """Recorded requests give sizes, and times where all of them have one."""
    text, sizes = TRACES[name]
    path = tmp_path / "trace.jsonl"
    path.write_text(text)

    assert sizes == read_trace(path)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("", "holds no request", ""),
        ('{"input_tokens": 1, "output_tokens": 1}\n{"input_tokens"\n', "no JSON", ":2"),
        ('{"output_tokens": 1}\n', "no count of input tokens", ":1"),
        ('{"input_tokens": 5, "output_tokens": 0}\n', "no count of output tokens", ":1"),
        ('{"input_tokens": true, "output_tokens": 1}\n', "no count of input tokens", ":1"),
        ("[1, 2]\n", "no count of input tokens", ":1"),
        ("[" * 100_000 + "]" * 100_000, "no JSON", ":1"),
    ],
)
def test_a_broken_trace_names_its_line(text: str, words: str, line: str, tmp_path: Path) -> None:
    """What is no request is told with its line and an example of a right one."""
    path = tmp_path / "trace.jsonl"
    path.write_text(text)

    with pytest.raises(InputError, match=words) as caught:
        read_trace(path)

    assert caught.value.where == f"{path}{line}"
    assert "input_tokens" in caught.value.hint


def test_a_trace_is_repeated_and_fitted(tmp_path: Path) -> None:
    """A ramp of more requests than were recorded begins again; a size beyond the context is cut to it."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"input_tokens": 900, "output_tokens": 20}\n{"input_tokens": 5, "output_tokens": 3}\n')

    workload = plan_workload(Options(trace_file=str(path)))

    sizes = [(size.prompt_tokens, size.output_tokens) for size in islice(workload.sizes(100), 3)]
    assert [(80, 20), (5, 3), (80, 20)] == sizes
    assert [0] == [size.output_tokens for size in islice(workload.sizes(100, generates=False), 1)]
    assert "; 1 of 2 recorded requests do not fit and are cut" == workload.cut_words(919)
    assert ["", ""] == [workload.cut_words(920), workload.cut_words(900, generates=False)]


def test_drawn_sizes_that_do_not_fit_are_told() -> None:
    """The largest that may be drawn counts."""
    workload = Workload(words="", input_tokens=90, output_tokens=10, random_range_ratio=0.5)

    assert "; cut: up to 150 tokens do not fit" == workload.cut_words(149)
    assert ["", ""] == [workload.cut_words(150), workload.cut_words(None)]


def test_arrivals_have_their_rate() -> None:
    """Requests come in order, as many as the rate says, with gaps that differ."""
    arrivals = plan_arrivals(
        Workload(words="", input_tokens=9, output_tokens=9), None, rate=50, window_seconds=20
    )

    assert arrivals is not None
    times = [size.at_seconds or 0.0 for size in arrivals.sizes]
    assert 1000 == len(times)
    assert 0.0 == times[0]
    assert all(before <= after for before, after in pairwise(times))
    assert 15 < times[-1] < 26  # the last of 999 gaps of 20 ms: four standard deviations are 2.5 s
    assert len({round(after - before, 6) for before, after in pairwise(times)}) > 500


def test_a_timed_trace_arrives_at_its_times() -> None:
    """Without a rate the recorded times count, up to the end of the window; without times there is no such load."""
    trace = tuple(Size(prompt_tokens=9, output_tokens=1, at_seconds=float(at)) for at in (0, 4, 25))

    timed = plan_arrivals(Workload(words="", trace=trace), None, rate=None, window_seconds=20)
    untimed = plan_arrivals(Workload(words=""), None, rate=None, window_seconds=20)

    assert timed is not None
    assert [0.0, 4.0] == [size.at_seconds for size in timed.sizes]
    assert untimed is None


def served(rate: float, number: int, places: int, seconds: float) -> list[Answer]:
    """Requests at an even rate, answered first come first served by so many places that take so long for each."""
    free = [0.0] * places
    answers = []
    for index in range(number):
        sent = index / rate
        place = free.index(min(free))
        begins = max(sent, free[place])
        free[place] = begins + seconds
        answers.append(
            Answer(
                started_seconds=sent,
                first_token_seconds=begins - sent + seconds / 2,
                seconds=begins - sent + seconds,
            )
        )
    return answers


@pytest.mark.parametrize(
    ("rate", "places", "seconds", "behind"),
    [(10, 4, 0.3, False), (10, 12, 1.0, False), (10, 2, 0.3, True), (40, 2, 0.3, True), (0.2, 1, 2.0, False)],
)
def test_a_growing_queue_is_seen(rate: float, places: int, seconds: float, behind: bool) -> None:
    """More arriving than is answered makes a queue that grows; a long answer alone makes none."""
    assert behind == is_falling_behind(served(rate, 200, places, seconds))


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_rate": 0.0},
        {"request_rate": float("inf")},
        {"minutes": -1.0},
        {"minutes": float("nan")},
        {"max_num_seqs": 0},
        {"random_range_ratio": 1.0},
        {"random_range_ratio": -0.1},
    ],
)
def test_what_asks_for_nothing_or_for_no_end_is_refused(wrong: dict[str, float]) -> None:
    """A rate, a time or a spread that means nothing is a usage error that names the option."""
    name = next(iter(wrong))

    with pytest.raises(UsageError, match=name) as caught:
        Options(**wrong)  # type: ignore[arg-type]

    assert "--" + name.replace("_", "-") == caught.value.where


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (Options(), 8),
        (Options(max_num_seqs=64), 64),
        (Options(max_num_seqs=64, goal_concurrency=20), 20),
        (Options(max_num_seqs=4, goal_concurrency=20), 4),
        (Options(profile="quick"), 4),
        (Options(profile="quick", max_num_seqs=64), 4),
        (Options(profile="quick", max_num_seqs=2), 2),
    ],
)
def test_the_ramp_ends_at_the_goal_or_the_servers_limit(options: Options, end: int) -> None:
    """The goal first, then ``max_num_seqs``, then a small number."""
    assert end == options.ramp_concurrency


FOREIGN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["input_tokens", "output_tokens", "at_seconds", "timestamp", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


@given(st.lists(st.binary(max_size=40) | FOREIGN.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_any_file_is_a_trace_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    """Whatever a file holds, it gives requests of positive sizes in the order of their times, or one error with its place."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(lines))

    where = str(path)
    try:
        trace = read_trace(path)
    except InputError as error:
        trace, where = (), error.where

    assert str(path) in where
    assert all(size.prompt_tokens > 0 and size.output_tokens > 0 for size in trace)
    times = [size.at_seconds for size in trace if size.at_seconds is not None]
    assert times in ([], sorted(times))
