"""``fitserve demo --simulate``: the whole loop on a simulated machine, which says so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENTRY = [sys.executable, "-c", "from fitserve.cli import main; main()", "demo"]


def demo(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it."""
    env = {**os.environ, "FITSERVE_DATA_DIR": str(data)}
    return subprocess.run([*ENTRY, *words], env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("device", "release"),
    [("RTX 4090", "0.32.0"), ("T4", "0.12.0"), ("H100", "0.10.2"), ("H200", "0.24.0")],
)
def test_the_loop_ends_with_a_proof(device: str, release: str, tmp_path: Path) -> None:
    """The first start fails for want of KV cache, a later one serves, and every answer says that it is simulated."""
    done = demo(tmp_path, "--simulate", device, "--simulate-vllm", release, "--json")
    answer: dict[str, Any] = json.loads(done.stdout)

    assert (0, "served", True) == (done.returncode, answer["outcome"], answer["simulated"])
    assert "kv-cache-smaller-than-context" == answer["trials"][0]["cause"]
    assert done.stderr.startswith("SIMULATED: no GPU, no vLLM and no weights are at work here.")


def test_the_text_says_it_first_and_last(tmp_path: Path) -> None:
    """The headline stands above and below; the record keeps it."""
    done = demo(tmp_path, "--simulate", "RTX 4090", "--quiet")
    lines = done.stdout.strip().splitlines()

    assert lines[0] == lines[-1]
    assert lines[0].startswith("SIMULATED: ")
    assert any(line.split()[:1] == ["SIMULATED"] for line in lines[1:-1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--simulate", "RTX 9999"], "no simulated device is called 'RTX 9999'"),
        (["--simulate", "L4", "--simulate-vllm", "0.5.0"], "vLLM 0.5.0 cannot be simulated"),
        (["--simulate-vllm", "0.19.0"], "--simulate-vllm goes with --simulate"),
    ],
)
def test_what_cannot_be_simulated(words: list[str], said: str, tmp_path: Path) -> None:
    """A usage error with what there is."""
    done = demo(tmp_path, *words)

    assert (2, True) == (done.returncode, said in done.stderr)
