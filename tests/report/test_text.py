"""A diagnosis as text: whole outputs, and laws for any diagnosis."""

import re
from pathlib import Path
from typing import get_args

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.diagnose.finding import (
    Advice,
    Cost,
    Diagnosis,
    Direction,
    Earlier,
    Evidence,
    NotAdvised,
    Stage,
    Wrapper,
)
from fitserve.diagnose.pages import CAUSES
from fitserve.diagnose.triage import Example, Failure, Group, Triage
from fitserve.report.actions import COMMANDS
from fitserve.report.figures import figures
from fitserve.report.text import render_diagnosis
from fitserve.report.triage_text import render_triage

CASES = Path(__file__).parent / "diagnoses"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
"""A pair of files makes a case: NAME.json, a diagnosis, and NAME.txt, its text."""

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT, st.lists(st.integers(), max_size=2)
)
SIZES = st.one_of(
    st.fixed_dictionaries({"unknown": ANY_TEXT}),
    st.fixed_dictionaries({"low": NUMBERS, "expected": NUMBERS, "high": NUMBERS, "source": NUMBERS}),
    NUMBERS,
)
KEYS = st.one_of(
    ANY_TEXT,
    st.sampled_from(
        [
            "needed_gib",
            "available_gib",
            "max_model_len",
            "estimated_max_model_len",
            "kv_tokens",
            "bytes_per_token",
        ]
    ),
)
TERMS = ["requested_bytes", "weights_bytes", "activation_bytes", "kv_cache_bytes", "rank"]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT)
MAYBE_TEXT = st.none() | ANY_TEXT
LINES = st.none() | st.integers(min_value=1, max_value=10**9)

DIAGNOSES = st.builds(
    Diagnosis,
    stage=st.sampled_from(get_args(Stage)),
    cause=st.sampled_from(sorted(CAUSES)) | ANY_TEXT,
    line=LINES,
    severity=st.sampled_from(["error", "warning", "note"]),
    confidence=st.sampled_from(["certain", "likely", "possible"]),
    message=ANY_TEXT,
    evidence=st.lists(st.builds(Evidence, line=st.integers(1, 10**6), text=ANY_TEXT), max_size=6),
    numbers=st.dictionaries(KEYS, SIZES, max_size=6),
    wrappers=st.lists(st.builds(Wrapper, id=ANY_TEXT, line=st.integers(1, 10**6)), max_size=3),
    vllm_version=MAYBE_TEXT,
    earlier=st.lists(
        st.builds(
            Earlier,
            boot=st.integers(1, 9),
            stage=st.sampled_from(get_args(Stage)),
            cause=ANY_TEXT,
            line=LINES,
        ),
        max_size=2,
    ),
    process=MAYBE_TEXT,
    budget=st.lists(st.dictionaries(st.sampled_from(TERMS), SIZES), max_size=2),
    advice=st.lists(
        st.builds(
            Advice,
            flag=MAYBE_TEXT,
            action=st.none() | st.sampled_from(sorted(COMMANDS)) | ANY_TEXT,
            value_from=SCALARS,
            to=SCALARS,
            direction=st.none() | st.sampled_from(get_args(Direction)),
            cost=st.sampled_from(get_args(Cost)),
            why=ANY_TEXT,
            option=MAYBE_TEXT,
            predicted=st.dictionaries(KEYS, SIZES, max_size=2),
        ),
        max_size=3,
    ),
    not_advised=st.lists(st.builds(NotAdvised, flag=MAYBE_TEXT, action=MAYBE_TEXT, why=ANY_TEXT), max_size=2),
)


def diagnosis(name: str) -> Diagnosis:
    """A case's diagnosis."""
    return msgspec.json.decode((CASES / f"{name}.json").read_bytes(), type=Diagnosis)


@pytest.mark.parametrize("name", NAMES)
def test_whole_text(name: str) -> None:
    """The text of a diagnosis is that of its case, to the letter."""
    expected = (CASES / f"{name}.txt").read_text(encoding="utf-8")

    assert expected == render_diagnosis(diagnosis(name), "serve.log")


@given(DIAGNOSES, ANY_TEXT, st.integers(min_value=-5, max_value=300))
def test_any_diagnosis_has_a_text(anything: Diagnosis, source: str, width: int) -> None:
    """Whatever a log held, the text can be printed: no control character, no lone surrogate, one line feed at the end."""
    text = render_diagnosis(anything, source, width=width)

    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert [] == re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)


@given(DIAGNOSES)
def test_colours_change_no_word(anything: Diagnosis) -> None:
    """Without its paint the coloured text is the plain one."""
    painted = render_diagnosis(anything, "serve.log", colored=True)

    assert render_diagnosis(anything, "serve.log") == click.unstyle(painted)


@given(DIAGNOSES)
def test_an_option_stands_alone_on_its_line(anything: Diagnosis) -> None:
    """What is to be typed can be copied as a line."""
    options = {" ".join((advice.option or "").split()) for advice in anything.advice}
    lines = {line.strip() for line in render_diagnosis(anything, "serve.log").splitlines()}

    assert {option for option in options if option and option.isascii() and option.isprintable()} <= lines


@pytest.mark.parametrize("width", [40, 60, 100])
def test_text_fits_its_width(width: int) -> None:
    """Prose is wrapped at the width; only a place, a figure or a command may be longer."""
    lines = render_diagnosis(diagnosis("full"), "serve.log", width=width).splitlines()
    prose = [line for line in lines if not line.startswith(("  -->", "  = ", "    "))]

    assert [] == [line for line in prose if len(line) > width]


def test_triage_as_text() -> None:
    """The table shows each cause with its count and one example, and what could not be read."""
    example = Example("a/1.log", 7, "no space is left")
    found = Triage(
        groups=[
            Group(cause="disk-full", stage="environment", count=1200, files=["a/1.log"], example=example),
            Group(
                cause="healthy", stage="-", count=1, files=["b"], example=Example("b", None, "nothing failed")
            ),
        ],
        failed=[Failure("c.log", "permission denied")],
    )
    expected = """\
1,201 logs, 2 kinds of answer; 1 not readable

1,200  disk-full  environment
       no space is left
       --> a/1.log:7

    1  healthy    -
       nothing failed
       --> b

not read: c.log (permission denied)
"""

    assert expected == render_triage(found)


def test_a_setting_in_bytes_says_its_unit() -> None:
    """A size set by hand is shown with its unit, a count without."""
    found = figures(
        Diagnosis(
            stage="kv_cache",
            cause="kv-cache-pinned-too-small",
            line=None,
            severity="error",
            confidence="certain",
            message="",
            numbers={"kv_cache_memory_bytes": 104857600, "max_num_seqs": 256},
        )
    )

    assert ["kv_cache_memory_bytes 100 MiB", "max_num_seqs 256"] == found.settings


def test_a_printed_size_keeps_its_digits() -> None:
    """What vLLM printed as 0.06 GiB is not shown in a finer unit, whose digits nobody has seen."""
    found = figures(
        Diagnosis(
            stage="kv_cache",
            cause="kv-cache-smaller-than-context",
            line=None,
            severity="error",
            confidence="certain",
            message="",
            numbers={"needed_gib": 0.06, "available_gib": 0.04},
        )
    )

    assert [("0.06", "GiB"), ("0.04", "GiB")] == [(row.number, row.unit) for row in found.rows]
