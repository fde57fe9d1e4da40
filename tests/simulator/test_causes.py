"""A simulated failure is diagnosed as what the simulator intended: neither side knows the other's words."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_path

CASES = tomllib.loads((Path(__file__).parent / "causes.toml").read_text())["case"]
USUAL = ["0.10.2", "0.32.0"]
ALL = [(case, release) for case in CASES for release in case.get("releases", USUAL)]
READY = "Application startup complete."


@pytest.mark.parametrize(
    ("case", "release"), ALL, ids=[f"{CASES.index(case)}-{case['cause']}-{release}" for case, release in ALL]
)
def test_the_intended_cause(
    case: dict[str, Any], release: str, site: Callable[..., Any], free_port: int
) -> None:
    """The log of a real process names the cause; a start that fails ends with vLLM's exit code."""
    names = ("device", "count", "model", "faults", "changes")
    place = site(vllm_version=release, seed=7, **{name: case[name] for name in names if name in case})
    process, log = place.start(
        *case.get("words", "").split(), "--port", str(free_port), **case.get("env", {})
    )
    place.until(log, READY, process)
    if case["cause"] == "healthy":
        code = process.poll()
        place.stop()
    else:
        code = process.wait()
    diagnosis = diagnose_path(log)

    usage = case["cause"] == "unknown-flag"
    assert (case["cause"], None if case["cause"] == "healthy" else 2 if usage else 1) == (
        diagnosis.cause,
        code,
    )
