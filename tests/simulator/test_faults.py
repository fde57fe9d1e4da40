"""The loop on machines where something is wrong beside memory: it ends, names it, and leaves nothing running."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ENTRY = [sys.executable, "-c", "from fitserve.cli import main; main()", "fix", "--json", "--quiet"]


def fix(place: Any, data: Path, port: int, *words: str) -> dict[str, Any]:
    """Run ``fix`` there; its answer."""
    env = {**place.environ, "FITSERVE_DATA_DIR": str(data), "FITSERVE_LOCK_DIR": str(data / "locks")}
    launch = ["vllm", "serve", place.model, "--port", str(port), "--max-model-len", "8192"]
    done = subprocess.run(
        [*ENTRY, *words, "--", *launch], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def holders(place: Any) -> list[str]:
    """What still holds memory of the machine."""
    text = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"],
        env={**os.environ, "PATH": place.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return text.split()


def test_a_start_that_hangs_is_given_up(site: Callable[..., Any], free_port: int, tmp_path: Path) -> None:
    """No line for as long as is allowed: not reached, and the hanging processes are gone."""
    place = site(vllm_version="0.19.0", faults=("hangs",))
    answer = fix(place, tmp_path, free_port, "--silence", "2", "--max-trials", "1")

    assert "not-reached" == answer["outcome"]
    assert [] == holders(place)


def test_a_flood_of_lines_is_read_through(site: Callable[..., Any], free_port: int, tmp_path: Path) -> None:
    """Two hundred thousand warnings before the server is up: it is proven all the same."""
    place = site(vllm_version="0.19.0", faults=("log-flood",))
    answer = fix(place, tmp_path, free_port)

    assert ("served", 1) == (answer["outcome"], len(answer["trials"]))
    assert [] == holders(place)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("never-schedules", "request-never-scheduled"), ("host-memory", "host-memory-exhausted")],
)
def test_what_no_setting_helps_against(
    fault: str, cause: str, site: Callable[..., Any], free_port: int, tmp_path: Path
) -> None:
    """Named, and not reached."""
    place = site(vllm_version="0.32.0", faults=(fault,))
    answer = fix(place, tmp_path, free_port, "--deadline", "3", "--max-trials", "1")

    assert ("not-reached", cause) == (answer["outcome"], answer["trials"][0]["cause"])
    assert [] == holders(place)
