"""The composed reference logs beside the checkout: causes, stages, lines and advice, measured over all of them."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_lines
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.facts.log import read_lines

FOLDER = Path(__file__).parents[2].parent / "shared" / "corpus"
QUIET = {"healthy", "not-a-vllm-log"}

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the reference logs are not beside this checkout"),
]


def answers() -> Iterator[tuple[dict[str, Any], Diagnosis]]:
    """Every reference log's expected answer and its diagnosis."""
    for path in sorted(FOLDER.glob("*.expected.json")):
        expected = json.loads(path.read_text(encoding="utf-8"))
        log = path.with_name(path.name.replace(".expected.json", ".log"))
        content = (
            log.read_bytes() if log.exists() else gzip.decompress(log.with_suffix(".log.gz").read_bytes())
        )
        yield expected, diagnose_lines(read_lines(io.BytesIO(content)))


@pytest.fixture(scope="module")
def diagnosed() -> list[tuple[dict[str, Any], Diagnosis]]:
    """All of them, once."""
    return list(answers())


def meets(advice: Advice, wanted: dict[str, Any]) -> bool:
    """True where a piece of advice is of the kind that is wanted."""
    if "action" in wanted:
        return advice.action == wanted["action"]
    if advice.flag is None or advice.flag.lower() != wanted["flag"].lower():
        return False
    number = advice.to if isinstance(advice.to, int | float) and not isinstance(advice.to, bool) else None
    return (
        wanted.get("direction", advice.direction) == advice.direction
        and ("at_most" not in wanted or (number is not None and number <= wanted["at_most"]))
        and ("at_least" not in wanted or (number is not None and number >= wanted["at_least"]))
        and ("value" not in wanted or str(advice.to).lower() == str(wanted["value"]).lower())
    )


def share(found: list[bool]) -> float:
    """The share of what is true."""
    return sum(found) / len(found)


def test_causes_and_stages_are_right(diagnosed: list[tuple[dict[str, Any], Diagnosis]]) -> None:
    """At least 97 of 100 logs get their cause, 98 of 100 their stage."""
    causes = [got.cause in {want["cause"], *want["acceptable_causes"]} for want, got in diagnosed]
    stages = [got.stage == want["stage"] or got.cause != want["cause"] for want, got in diagnosed]

    assert share(causes) >= 0.97
    assert share(stages) >= 0.98


def test_lines_are_right(diagnosed: list[tuple[dict[str, Any], Diagnosis]]) -> None:
    """At least 95 of 100 answers point at the line of the first cause, or beside it."""
    near = [
        abs(got.line - want["first_cause_line"]) <= 1
        for want, got in diagnosed
        if want["first_cause_line"] is not None and got.line is not None
    ]

    assert share(near) >= 0.95


def test_advice_helps_and_never_harms(diagnosed: list[tuple[dict[str, Any], Diagnosis]]) -> None:
    """At least 95 of 100 answers hold a right piece of advice, and none a harmful one."""
    right = [
        any(meets(one, wanted) for one in got.advice for wanted in want["must_suggest"])
        for want, got in diagnosed
        if want["must_suggest"]
    ]
    harmful = [
        (want["id"], wanted)
        for want, got in diagnosed
        for wanted in want["must_not_suggest"]
        if any(meets(one, wanted) for one in got.advice)
    ]

    assert share(right) >= 0.95
    assert [] == harmful


def test_nothing_quiet_is_accused(diagnosed: list[tuple[dict[str, Any], Diagnosis]]) -> None:
    """A healthy server and a foreign log are never given a cause."""
    accused = [
        (want["id"], got.cause)
        for want, got in diagnosed
        if want["cause"] in QUIET and got.cause not in QUIET | set(want["acceptable_causes"])
    ]

    assert [] == accused
