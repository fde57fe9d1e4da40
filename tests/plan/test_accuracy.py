"""Plans against measured starts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.shared
def test_the_targets_are_met() -> None:
    """Median errors, the share of large ones and the verdicts of refused starts are within their targets."""
    if not (ROOT.parent / "shared" / "truth.jsonl").exists():
        pytest.skip("the measured starts are not beside the checkout")
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "accuracy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
