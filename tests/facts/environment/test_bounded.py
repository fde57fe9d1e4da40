"""Questions that are not answered."""

import sys
import threading

import pytest

from fitserve.errors import InputError
from fitserve.facts.environment.bounded import all_within, ask_program
from fitserve.units import Unknown

SLEEPS_WITH_A_CHILD = (
    "import subprocess, time; subprocess.Popen(['sleep', '600']); print('begun', flush=True); time.sleep(600)"
)


def test_a_hanging_program_and_its_children_are_killed(mark) -> None:  # noqa: ANN001 - a fixture of conftest
    """The answer says so, and nothing is left behind."""
    answer = ask_program([sys.executable, "-c", SLEEPS_WITH_A_CHILD], 1, environ=mark.env)

    assert Unknown(f"{sys.executable.rpartition('/')[2]} did not answer within 1 s") == answer
    assert [] == mark.left_after(10)


def test_failures_have_reasons() -> None:
    """What is not there, and what fails."""
    failing = ask_program([sys.executable, "-c", "import sys; sys.exit('no driver')"], 60)

    assert isinstance(failing, Unknown)
    assert failing.unknown.endswith("ended with 1: no driver")
    assert Unknown(
        "nvidia-smi-that-is-not-there cannot be started: No such file or directory"
    ) == ask_program(["nvidia-smi-that-is-not-there"], 60)
    assert "out\n" == ask_program(["echo", "out"], 60)


def test_one_that_hangs_keeps_no_other() -> None:
    """Answers that are there count; late and failing ones are unknown; a defect is not hidden."""
    forever = threading.Event()

    def refused() -> None:
        raise InputError("no such engine: x")

    found = all_within({"quick": lambda: 7, "never": forever.wait, "refused": refused}, 0.5)
    forever.set()

    assert {
        "quick": 7,
        "never": Unknown("no answer within 0.5 s"),
        "refused": Unknown("no such engine: x"),
    } == found
    with pytest.raises(ZeroDivisionError):
        all_within({"defect": lambda: 1 / 0}, 60)


def test_a_flood_is_no_answer() -> None:
    """A program that prints without end is ended, and its output is not kept."""
    answer = ask_program(["yes"], 60)

    assert isinstance(answer, Unknown)
    assert "yes printed more than 16 MiB" == answer.unknown
