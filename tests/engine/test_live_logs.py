"""Logs that the real CPU engine has written, diagnosed. A case is two files in ``tests/live_logs``: ``NAME.log`` and ``NAME.toml``."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_path

FOLDER = Path(__file__).parents[1] / "live_logs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.log"))


def answer(name: str) -> dict[str, Any]:
    """What a person has read in the log.

    Keys: ``cause``; ``acceptable``, other causes that are as good; ``stage``; ``line``, the first one with the cause; ``advice``,
    flags that must be among the advice; ``not_advised``, flags that must not; ``gap``, why the diagnosis is known to fall short;
    whoever closes it takes the key out.
    """
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Each case."""
    chosen = str(request.param)
    gap = answer(chosen).get("gap")
    if gap:
        request.node.add_marker(pytest.mark.xfail(reason=gap, strict=False))
    return chosen


def test_the_diagnosis_of_a_real_log_is_what_a_person_reads(name: str) -> None:
    """Cause, stage and line are those of the answer; needed advice is there, and harmful advice is not."""
    expected = answer(name)
    found = diagnose_path(FOLDER / f"{name}.log")
    flags = [advice.flag for advice in found.advice]

    assert found.cause in [expected["cause"], *expected.get("acceptable", [])]
    assert found.cause != expected["cause"] or expected.get("stage", found.stage) == found.stage
    assert expected.get("line", found.line) == found.line
    assert [] == [flag for flag in expected.get("advice", []) if flag not in flags]
    assert [] == [flag for flag in expected.get("not_advised", []) if flag in flags]


def test_every_log_has_its_answer() -> None:
    """No log without an answer, no answer without a log."""
    assert NAMES == sorted(path.stem for path in FOLDER.glob("*.toml"))
    assert len(NAMES) > 20
