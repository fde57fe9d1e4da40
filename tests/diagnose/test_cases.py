"""Whole logs with their answers: one file a case, no Python needed to add one.

A case is a TOML file in ``cases/``: ``log`` holds the text; ``cause``, ``stage`` and ``line`` the answer; ``confidence``,
``version``, ``numbers``, ``advice`` and ``not_advised`` what is asked beyond it. A piece of advice is ``flag``,
``flag=value``, ``flag+`` (up), ``flag-`` (down), or an action's id.
"""

import io
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_lines
from fitserve.diagnose.finding import Advice, Diagnosis, NotAdvised
from fitserve.diagnose.rules.registry import RULES
from fitserve.facts.log import read_lines

CASES = sorted((Path(__file__).parent / "cases").glob("*.toml"))
WITHOUT_A_MESSAGE = {
    "preemption-thrash",
    "request-never-scheduled",
    "wrapper-only",
    "healthy",
    "not-a-vllm-log",
}


def read_case(path: Path) -> tuple[dict[str, Any], Diagnosis]:
    """A case and the diagnosis of its log."""
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    return case, diagnose_lines(read_lines(io.BytesIO(case["log"].encode())))


def spell(advice: Advice | NotAdvised) -> set[str]:
    """The ways in which a case may ask for this piece of advice."""
    name = advice.action or advice.flag or ""
    sign = {"up": "+", "down": "-"}.get(advice.direction or "", "")
    spelled = {name, name + sign}
    return spelled | {f"{name}={advice.to}"} if isinstance(advice, Advice) else spelled


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_answer_is_right(path: Path) -> None:
    """Cause, stage and line are those of the case, and so is whatever else it asks for."""
    case, found = read_case(path)
    given = set().union(*map(spell, found.advice)) if found.advice else set()
    warned = set().union(*map(spell, found.not_advised)) if found.not_advised else set()
    numbers = {name: found.numbers.get(name) for name in case.get("numbers", {})}

    assert (case["cause"], case["stage"], case.get("line")) == (found.cause, found.stage, found.line)
    assert set(case.get("advice", [])) <= given
    assert set(case.get("not_advised", [])) <= warned
    assert set() == set(case.get("not_advised", [])) & given
    assert case.get("numbers", {}) == numbers
    assert case.get("confidence", found.confidence) == found.confidence
    assert case.get("version", found.vllm_version) == found.vllm_version


def test_every_cause_has_a_case() -> None:
    """No cause is without a log of its own here."""
    covered = {tomllib.loads(path.read_text(encoding="utf-8"))["cause"] for path in CASES}

    assert set() == (RULES.keys() | WITHOUT_A_MESSAGE) - covered


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_messages_read_well(path: Path) -> None:
    """A message is one lower-case sentence on one line, with no stop at its end."""
    message = read_case(path)[1].message

    assert message == message.strip()
    assert "\n" not in message
    assert not message.endswith(".")
    assert message[0] == message[0].lower() or message.startswith(("CUDA_", "vLLM", "VLLM_"))
