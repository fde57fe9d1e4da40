"""How long a start should take, from earlier ones, and how that is shown."""

import io

import pytest

from fitserve.facts.command import read_command
from fitserve.trial.expectation import UNKNOWN, Expectation, clock, expectation
from fitserve.trial.outcome import PhaseTime, State, Trial
from fitserve.trial.progress import Plain


def trial(command: str, outcome: State, *begins: float, seconds: float) -> Trial:
    """A trial whose phases began at some times."""
    stages = ("config", "weights", "profiling", "kv_cache")
    phases = [
        PhaseTime(stage=stage, start_seconds=begin) for stage, begin in zip(stages, begins, strict=False)
    ]
    return Trial(n=1, argv=command.split(), outcome=outcome, seconds=seconds, phases=phases)


EARLIER = [
    trial("vllm serve m --port 1", "served", 0, 10, 50, seconds=100),
    trial("vllm serve m --max-model-len 9", "served", 0, 20, 80, seconds=120),
    trial("vllm serve m", "failed", 0, 30, seconds=33),
    trial("vllm serve m", "stopped", 0, 999, seconds=999),
    trial("vllm serve m --enforce-eager", "served", 0, 1, seconds=2),
    trial("vllm serve m -tp 2", "served", 0, 1, seconds=2),
    trial("vllm serve other", "served", 0, 1, seconds=2),
    trial("no launch at all", "failed", 0, 1, seconds=2),
]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m --port 7", Expectation(seconds=110, phases={"config": 20, "weights": 50})),
        ("vllm serve --model m", Expectation(seconds=110, phases={"config": 20, "weights": 50})),
        ("vllm serve m --tensor-parallel-size=2", Expectation(seconds=2, phases={"config": 1})),
        ("vllm serve m --enforce-eager -tp 2", UNKNOWN),
        ("vllm serve new", UNKNOWN),
    ],
)
def test_starts_of_the_same_shape_count(command: str, expected: Expectation) -> None:
    """The median of what the same model took on as many devices; a phase counts when it was passed."""
    assert expected == expectation(read_command(command.split()), EARLIER)


def test_what_is_expected_is_said() -> None:
    """The whole start where one has answered, else the stage, else nothing."""
    whole = Expectation(seconds=100, phases={"weights": 40})
    part = Expectation(phases={"weights": 40})

    assert "expected 1:40, now 0:35" == whole.words("weights", 35.2, 5)
    assert "weights: expected 0:40, now 0:05" == part.words("weights", 35.2, 5)
    assert ("", "") == (part.words("profiling", 35, 5), UNKNOWN.words("weights", 35, 5))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (100, "1:40"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_a_clock(seconds: float, shown: str) -> None:
    """Hours only where there are some."""
    assert shown == clock(seconds)


def test_plain_lines_are_sparse() -> None:
    """Between phases one line in half a minute, however often it is told."""
    stream = io.StringIO()
    progress = Plain(stream)
    progress.trial_started(1, "vllm serve m", "")
    progress.phase("weights", 2.0)
    for tenth in range(20, 700):
        progress.tick("weights", tenth / 10, f"weights {tenth // 7}%, expected 1:40, now 0:35 ")

    assert [
        "trial 1: vllm serve m",
        "trial 1: weights (2 s)",
        "trial 1: weights (32 s): weights 45%, expected 1:40, now 0:35",
        "trial 1: weights (62 s): weights 88%, expected 1:40, now 0:35",
    ] == stream.getvalue().splitlines()
