"""How the tool ends where an answer cannot be given or written."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = [sys.executable, "-m", "fitserve"]


def test_an_answer_that_cannot_be_written_is_no_defect() -> None:
    """A full device behind standard output is told in one line, with the code of an unusable place."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*TOOL, "explain", "disk-full"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert 3 == done.returncode
    assert (
        "error: the answer cannot be written: No space left on device\n  --> standard output\n" == done.stderr
    )


def test_an_error_is_json_where_json_was_asked_for() -> None:
    """With ``--json`` standard output holds one object for an error too, with its exit code."""
    done = subprocess.run(
        [*TOOL, "diagnose", "--json", "no-such.log"], capture_output=True, text=True, check=False
    )
    answer = json.loads(done.stdout)

    assert (3, 3) == (done.returncode, answer["exit_code"])
    assert ("error", "no-such.log") == (answer["kind"], answer["where"])


def test_the_json_of_a_launched_command_is_its_own() -> None:
    """A ``--json`` behind ``--`` belongs to the launched program."""
    done = subprocess.run(
        [*TOOL, "fix", "--", "no-vllm", "--json"], capture_output=True, text=True, check=False
    )

    assert (2, "") == (done.returncode, done.stdout)
